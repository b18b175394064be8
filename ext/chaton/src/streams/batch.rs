//! `Chaton::Native::Batch`: a batch as a Ruby object. Its records become objects when they are
//! used.
//!
//! A batch ends once. One that is collected open is abandoned: its records are handed out again.

use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::sync::Arc;
use std::time::Duration;

use chaton_embedded::Enlisted;
use chaton_streams::batch::{Batch, BatchKind, BatchOutcome, BatchVerdict};
use chaton_streams::record::OwnedRecord;
use magnus::gc::Marker;
use magnus::rb_sys::{protect, AsRawValue, FromRawValue};
use magnus::{
    method, prelude::*, DataTypeFunctions, Error, RArray, RModule, Ruby, Symbol, TypedData, Value,
};
use rb_sys::VALUE;

use super::new_record::{pass_on, RubyRecord};
use super::position::position;
use super::record::{binary, RbRecord};
use crate::convert::seconds;
use crate::gvl::{check_interrupts, without_gvl_to_the_end};
use crate::names;
use crate::{error, handle, traces};

/// The current offset outside of `each`.
const NO_OFFSET: i64 = i64::MIN;

/// Where a batch comes from, as traces name it.
pub struct BatchSource<'a> {
    /// The log.
    pub system: &'static str,
    /// The consumer group.
    pub group: &'a str,
}

/// A batch, or a slice of one.
#[derive(TypedData)]
#[magnus(class = "Chaton::Native::Batch", mark, free_immediately, size)]
pub struct RbBatch {
    made_in: u32,
    batch: ManuallyDrop<Arc<Batch>>,
    /// The offset of the record that `each` has yielded last, of the batch or any of its slices.
    current: Arc<AtomicI64>,
    /// What traces call the log.
    system: &'static str,
    /// It is a slice of another batch.
    slice: bool,
    start: u32,
    len: u32,
    /// Bytes of records that Ruby's collector counts.
    gc_bytes: i64,
    deserializer: Cell<VALUE>,
}

// SAFETY: only used and dropped by threads that hold the GVL.
unsafe impl Send for RbBatch {}
// SAFETY: as above.
unsafe impl Sync for RbBatch {}

impl DataTypeFunctions for RbBatch {
    fn mark(&self, marker: &Marker) {
        // SAFETY: nil, or what `deserializer=` was given.
        marker.mark(unsafe { Value::from_raw(self.deserializer.get()) });
    }
}

impl Drop for RbBatch {
    fn drop(&mut self) {
        // In a forked child this is a copy: the parent ends the batch.
        if self.made_in != handle::generation() {
            return;
        }
        if !self.slice {
            // Without effect when it has ended.
            self.batch.finish(BatchOutcome::Abandoned);
        }
        // SAFETY: dropped once, here, and not used after; Ruby drops objects with the GVL held.
        unsafe {
            ManuallyDrop::drop(&mut self.batch);
            rb_sys::rb_gc_adjust_memory_usage(-self.gc_bytes);
        }
    }
}

impl RbBatch {
    /// The batch as a Ruby object. Its records live outside of Ruby's heap as long as the object:
    /// without their bytes, Ruby would collect it far too late.
    pub fn wrap(ruby: &Ruby, batch: Arc<Batch>, system: &'static str) -> Value {
        let len = batch.len() as u32;
        let gc_bytes = batch.bytes() as i64;
        // SAFETY: the GVL is held: a Ruby object is about to be made.
        unsafe { rb_sys::rb_gc_adjust_memory_usage(gc_bytes) };
        let batch = Self {
            made_in: handle::generation(),
            batch: ManuallyDrop::new(batch),
            current: Arc::new(AtomicI64::new(NO_OFFSET)),
            system,
            slice: false,
            start: 0,
            len,
            gc_bytes,
            deserializer: Cell::new(rb_sys::Qnil as VALUE),
        };
        ruby.obj_wrap(batch).as_value()
    }

    /// The batch behind it.
    pub fn batch(&self) -> &Arc<Batch> {
        &self.batch
    }

    /// As [`RbBatch::wrap`], for the thread that runs it; `None` when it may no longer be started.
    pub fn start(
        ruby: &Ruby,
        batch: Arc<Batch>,
        thread: usize,
        source: BatchSource<'_>,
    ) -> Option<Value> {
        if batch.may_start() {
            batch.started_on(thread);
            traces::batch_begins(&batch, source.system, source.group);
            return Some(Self::wrap(ruby, batch, source.system));
        }
        batch.finish(BatchOutcome::Abandoned);
        None
    }

    fn pick(&self, index: u32) -> u32 {
        self.batch.picks()[(self.start + index) as usize]
    }

    fn offset_at(&self, index: u32) -> i64 {
        self.batch.chunk().entries()[self.pick(index) as usize].offset
    }

    fn record(&self, ruby: &Ruby, index: u32) -> Value {
        RbRecord::wrap(ruby, (*self.batch).clone(), self.pick(index), self.deserializer.get())
    }

    fn kind(&self) -> Symbol {
        let ruby = Ruby::get().unwrap_or_else(|_| unreachable!("called by Ruby"));
        ruby.to_symbol(match self.batch.kind() {
            BatchKind::Records => "records",
            BatchKind::Revoked => "revoked",
            BatchKind::End => "end",
            BatchKind::Shutdown => "shutdown",
        })
    }

    fn topic(&self) -> Value {
        names::name(&self.batch.partition().topic)
    }

    fn size(&self) -> u32 {
        self.len
    }

    /// The record at this index, counted from the end when negative; nil outside.
    fn at(ruby: &Ruby, rb_self: &Self, index: i64) -> Option<Value> {
        let index = if index < 0 { index + i64::from(rb_self.len) } else { index };
        let index = u32::try_from(index).ok().filter(|index| *index < rb_self.len)?;
        Some(rb_self.record(ruby, index))
    }

    /// Yields each record.
    fn each(
        ruby: &Ruby,
        rb_self: magnus::typed_data::Obj<Self>,
    ) -> Result<magnus::typed_data::Obj<Self>, Error> {
        let batch: &Self = &rb_self;
        // One protected frame for all records; it owns nothing while Ruby runs.
        protect(|| {
            for index in 0..batch.len {
                batch.current.store(batch.offset_at(index), Relaxed);
                let record = batch.record(ruby, index).as_raw();
                // SAFETY: the GVL is held, and a raise leaves this frame for
                // `protect`, jumping over plain numbers only.
                unsafe { rb_sys::rb_yield(record) };
            }
            rb_sys::Qnil as VALUE
        })?;
        batch.current.store(NO_OFFSET, Relaxed);
        Ok(rb_self)
    }

    /// A slice, which shares its records; nil outside.
    fn slice(ruby: &Ruby, rb_self: &Self, start: u32, len: u32) -> Option<Value> {
        let len = len.min(rb_self.len.checked_sub(start)?);
        let slice = Self {
            made_in: handle::generation(),
            batch: rb_self.batch.clone(),
            current: rb_self.current.clone(),
            system: rb_self.system,
            slice: true,
            start: rb_self.start + start,
            len,
            gc_bytes: 0,
            deserializer: Cell::new(rb_self.deserializer.get()),
        };
        Some(ruby.obj_wrap(slice).as_value())
    }

    /// All values as bytes, without record objects.
    fn values(ruby: &Ruby, rb_self: &Self) -> Result<RArray, Error> {
        let values = ruby.ary_new_capa(rb_self.len as usize);
        for index in 0..rb_self.len {
            let record = rb_self.batch.chunk().record(rb_self.pick(index) as usize);
            values.push(record.value().map(binary))?;
        }
        Ok(values)
    }

    fn first_offset(&self) -> Option<i64> {
        (self.len > 0).then(|| self.offset_at(0))
    }

    fn last_offset(&self) -> Option<i64> {
        (self.len > 0).then(|| self.offset_at(self.len - 1))
    }

    fn current_offset(&self) -> Option<i64> {
        Some(self.current.load(Relaxed)).filter(|offset| *offset != NO_OFFSET)
    }

    /// The batch, in the process that took it.
    fn own(&self) -> Result<&Batch, Error> {
        if self.made_in == handle::generation() {
            return Ok(&self.batch);
        }
        Err(error::forked())
    }

    fn mark_through(&self, offset: i64) -> Result<(), Error> {
        self.own()?.mark(offset);
        Ok(())
    }

    fn mark_one(&self, offset: i64) -> Result<(), Error> {
        self.own()?.mark_one(offset);
        Ok(())
    }

    fn pause(&self, pause_s: f64) -> Result<(), Error> {
        self.own()?.pause(seconds("pause", pause_s)?);
        Ok(())
    }

    fn seek(&self, to: Value) -> Result<(), Error> {
        self.own()?.seek(position(to)?);
        Ok(())
    }

    fn finish(&self, outcome: BatchOutcome) -> Result<BatchVerdict, Error> {
        let batch = self.own()?;
        if self.slice {
            return Err(error::argument("this is a part of a batch: end the batch it is part of"));
        }
        if !batch.is_open() {
            return Err(error::batch_ended());
        }
        Ok(batch.finish(outcome))
    }

    fn done(ruby: &Ruby, rb_self: &Self) -> Result<Value, Error> {
        Ok(to_ruby(ruby, rb_self.finish(BatchOutcome::Done)?))
    }

    fn failed(
        ruby: &Ruby,
        rb_self: &Self,
        class: String,
        message: magnus::RString,
    ) -> Result<Value, Error> {
        let message = crate::convert::copy(message);
        let message = String::from_utf8_lossy(&message).into_owned();
        Ok(to_ruby(ruby, rb_self.finish(BatchOutcome::Failed { class, message })?))
    }

    fn abandon(&self) -> Result<(), Error> {
        self.finish(BatchOutcome::Abandoned).map(drop)
    }

    /// Writes records and commits in one transaction.
    fn transact(&self, list: RArray, through: Option<i64>) -> Result<(), Error> {
        let mut records = Vec::with_capacity(list.len());
        for index in 0..list.len() {
            records.push(RubyRecord::from_array(list.entry(index as isize)?)?.owned());
        }
        self.transact_with(records, None, through)
    }

    /// The same with what the store of jobs writes.
    ///
    /// # Errors
    /// A subclass of `Chaton::StreamError`.
    pub fn transact_with(
        &self,
        mut records: Vec<OwnedRecord>,
        also: Option<&dyn Enlisted>,
        through: Option<i64>,
    ) -> Result<(), Error> {
        let batch = self.own()?;
        let span = match records.first() {
            Some(first) => traces::produced(self.system, &first.topic, records.len())?,
            None => None,
        };
        records.iter_mut().for_each(|record| pass_on(&mut record.headers, span.as_ref()));
        let written = transact(batch, records, also, through);
        span.into_iter().for_each(|span| span.end(&written));
        written
    }

    fn set_deserializer(rb_self: magnus::typed_data::Obj<Self>, value: Value) {
        rb_self.deserializer.set(value.as_raw());
    }
}

/// Writes a transaction without the GVL.
fn transact(
    batch: &Batch,
    records: Vec<OwnedRecord>,
    also: Option<&dyn Enlisted>,
    through: Option<i64>,
) -> Result<(), Error> {
    let mut records = Some(records);
    loop {
        let run = || records.take().map(|records| batch.transact_with(records, also, through));
        match without_gvl_to_the_end(run).flatten() {
            Some(Ok(())) => return Ok(()),
            Some(Err(failed)) => return Err(super::log_error::raised(&failed)),
            None => check_interrupts()?,
        }
    }
}

/// The verdict as an Array: its name, and what belongs to it, as `[:retry, in_s, attempt]`.
fn to_ruby(ruby: &Ruby, verdict: BatchVerdict) -> Value {
    let name = |name| ruby.to_symbol(name);
    let seconds = |ms: u64| Duration::from_millis(ms).as_secs_f64();
    match verdict {
        BatchVerdict::Done => ruby.into_value((name("done"),)),
        BatchVerdict::Retry { in_ms, attempt } => {
            ruby.into_value((name("retry"), seconds(in_ms), attempt))
        }
        BatchVerdict::Isolated { in_ms } => ruby.into_value((name("isolated"), seconds(in_ms))),
        BatchVerdict::DeadLetter { topic } => ruby.into_value((name("dead_letter"), topic)),
        BatchVerdict::Dropped => ruby.into_value((name("dropped"),)),
    }
}

/// Defines the class.
pub fn define(ruby: &Ruby, native: RModule) -> Result<(), Error> {
    let class = native.define_class("Batch", ruby.class_object())?;
    class.undef_default_alloc_func();
    class.define_method("kind", method!(RbBatch::kind, 0))?;
    class.define_method("route", method!(|b: &RbBatch| b.batch.route(), 0))?;
    class.define_method("topic", method!(RbBatch::topic, 0))?;
    class.define_method("partition", method!(|b: &RbBatch| b.batch.partition().number, 0))?;
    class.define_method("generation", method!(|b: &RbBatch| b.batch.generation(), 0))?;
    class.define_method("lane", method!(|b: &RbBatch| b.batch.lane(), 0))?;
    class.define_alias("strand", "lane")?;
    class.define_method("attempt", method!(|b: &RbBatch| b.batch.attempt(), 0))?;
    class.define_method("isolated?", method!(|b: &RbBatch| b.batch.isolated(), 0))?;
    class.define_method("size", method!(RbBatch::size, 0))?;
    class.define_method("bytes", method!(|b: &RbBatch| b.batch.bytes(), 0))?;
    class.define_method("[]", method!(RbBatch::at, 1))?;
    class.define_method("each", method!(RbBatch::each, 0))?;
    class.define_method("slice", method!(RbBatch::slice, 2))?;
    class.define_method("values", method!(RbBatch::values, 0))?;
    class.define_method("first_offset", method!(RbBatch::first_offset, 0))?;
    class.define_method("last_offset", method!(RbBatch::last_offset, 0))?;
    class.define_method("current_offset", method!(RbBatch::current_offset, 0))?;
    class.define_method("mark", method!(RbBatch::mark_through, 1))?;
    class.define_method("mark_one", method!(RbBatch::mark_one, 1))?;
    class.define_method("pause", method!(RbBatch::pause, 1))?;
    class.define_method("seek", method!(RbBatch::seek, 1))?;
    class.define_method("end_offset", method!(|b: &RbBatch| b.batch.end_offset(), 0))?;
    class.define_method("revoked?", method!(|b: &RbBatch| b.batch.is_revoked(), 0))?;
    class.define_method("open?", method!(|b: &RbBatch| b.batch.is_open(), 0))?;
    class.define_method("describe", method!(|b: &RbBatch| b.batch.describe(), 0))?;
    class.define_method("done", method!(RbBatch::done, 0))?;
    class.define_method("failed", method!(RbBatch::failed, 2))?;
    class.define_method("abandon", method!(RbBatch::abandon, 0))?;
    class.define_method("transact", method!(RbBatch::transact, 2))?;
    class.define_method("deserializer=", method!(RbBatch::set_deserializer, 1))?;
    Ok(())
}
