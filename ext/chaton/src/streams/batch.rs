//! `Chaton::Native::Batch`: one turn in Ruby's hands. Records become objects
//! only when they are asked for.
//!
//! It ends once; dropped open, its records are given again.

use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};
use std::sync::Arc;
use std::time::Duration;

use chaton_streams::engine::{Ending, Kind, Turn, Verdict};
use magnus::gc::Marker;
use magnus::rb_sys::{protect, AsRawValue, FromRawValue};
use magnus::{
    function, method, prelude::*, DataTypeFunctions, Error, RArray, RModule, Ruby, Symbol,
    TypedData, Value,
};
use rb_sys::VALUE;

use super::build::build;
use super::given::Given;
use super::place;
use super::record::{binary, RbRecord};
use crate::convert::seconds;
use crate::gvl::{check_interrupts, without_gvl_to_the_end};
use crate::names;
use crate::{error, handle};

/// Stands for no record.
const NONE: i64 = i64::MIN;

/// What a batch and its views share.
#[derive(Default)]
struct Shared {
    ended: AtomicBool,
    /// Offset of the record that user code looks at.
    current: AtomicI64,
}

/// A turn, or a part of one.
#[derive(TypedData)]
#[magnus(class = "Chaton::Native::Batch", mark, free_immediately, size)]
pub struct RbBatch {
    made_in: u32,
    turn: ManuallyDrop<Arc<Turn>>,
    shared: Arc<Shared>,
    /// A part of another batch, which ends it.
    view: bool,
    start: u32,
    len: u32,
    /// Bytes of records that Ruby was told of.
    told_bytes: i64,
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
        // A forked child's copy: the parent ends it.
        if self.made_in != handle::generation() {
            return;
        }
        if !self.view && !self.shared.ended.load(Relaxed) {
            self.turn.abandon();
        }
        // SAFETY: dropped once, here, and not used after; Ruby drops objects
        // with the GVL held.
        unsafe {
            ManuallyDrop::drop(&mut self.turn);
            rb_sys::rb_gc_adjust_memory_usage(-self.told_bytes);
        }
    }
}

impl RbBatch {
    /// The turn as a Ruby object. Its records live as long as that, outside of
    /// Ruby's sight: were it not told, it would collect far too late.
    pub fn wrap(ruby: &Ruby, turn: Arc<Turn>) -> Value {
        let len = turn.len() as u32;
        let told_bytes = turn.bytes() as i64;
        // SAFETY: the GVL is held, as a Ruby object is about to be made.
        unsafe { rb_sys::rb_gc_adjust_memory_usage(told_bytes) };
        let shared = Shared { ended: AtomicBool::new(false), current: AtomicI64::new(NONE) };
        let batch = Self {
            made_in: handle::generation(),
            turn: ManuallyDrop::new(turn),
            shared: Arc::new(shared),
            view: false,
            start: 0,
            len,
            told_bytes,
            deserializer: Cell::new(rb_sys::Qnil as VALUE),
        };
        ruby.obj_wrap(batch).as_value()
    }

    /// The turn behind it.
    pub fn turn(&self) -> &Arc<Turn> {
        &self.turn
    }

    /// As [`RbBatch::wrap`], for a thread that takes it; `None` when it may
    /// not be started any more.
    pub fn start(ruby: &Ruby, turn: Arc<Turn>) -> Option<Value> {
        if turn.may_start() {
            return Some(Self::wrap(ruby, turn));
        }
        turn.abandon();
        None
    }

    fn pick(&self, place: u32) -> u32 {
        self.turn.picks()[(self.start + place) as usize]
    }

    fn offset_at(&self, place: u32) -> i64 {
        self.turn.chunk().entries()[self.pick(place) as usize].offset
    }

    fn record(&self, ruby: &Ruby, place: u32) -> Value {
        RbRecord::wrap(ruby, (*self.turn).clone(), self.pick(place), self.deserializer.get())
    }

    fn kind(&self) -> Symbol {
        let ruby = Ruby::get().unwrap_or_else(|_| unreachable!("called by Ruby"));
        ruby.to_symbol(match self.turn.kind() {
            Kind::Records => "records",
            Kind::Revoked => "revoked",
            Kind::End => "end",
            Kind::Shutdown => "shutdown",
        })
    }

    fn topic(&self) -> Value {
        names::name(&self.turn.partition().topic)
    }

    fn size(&self) -> u32 {
        self.len
    }

    /// The record at this place, counted from the end when negative; nil
    /// outside.
    fn at(ruby: &Ruby, rb_self: &Self, place: i64) -> Option<Value> {
        let place = if place < 0 { place + i64::from(rb_self.len) } else { place };
        let place = u32::try_from(place).ok().filter(|place| *place < rb_self.len)?;
        Some(rb_self.record(ruby, place))
    }

    /// Yields each record.
    fn each(
        ruby: &Ruby,
        rb_self: magnus::typed_data::Obj<Self>,
    ) -> Result<magnus::typed_data::Obj<Self>, Error> {
        let batch: &Self = &rb_self;
        // One protected frame for all records; it owns nothing while Ruby runs.
        protect(|| {
            for place in 0..batch.len {
                batch.shared.current.store(batch.offset_at(place), Relaxed);
                let record = batch.record(ruby, place).as_raw();
                // SAFETY: the GVL is held, and a raise leaves this frame for
                // `protect`, jumping over plain numbers only.
                unsafe { rb_sys::rb_yield(record) };
            }
            rb_sys::Qnil as VALUE
        })?;
        batch.shared.current.store(NONE, Relaxed);
        Ok(rb_self)
    }

    /// A part of it, which shares its records; nil outside.
    fn slice(ruby: &Ruby, rb_self: &Self, start: u32, len: u32) -> Option<Value> {
        let len = len.min(rb_self.len.checked_sub(start)?);
        let view = Self {
            made_in: handle::generation(),
            turn: rb_self.turn.clone(),
            shared: rb_self.shared.clone(),
            view: true,
            start: rb_self.start + start,
            len,
            told_bytes: 0,
            deserializer: Cell::new(rb_self.deserializer.get()),
        };
        Some(ruby.obj_wrap(view).as_value())
    }

    /// All values as they are, without records between.
    fn values(ruby: &Ruby, rb_self: &Self) -> Result<RArray, Error> {
        let values = ruby.ary_new_capa(rb_self.len as usize);
        for place in 0..rb_self.len {
            let record = rb_self.turn.chunk().record(rb_self.pick(place) as usize);
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
        Some(self.shared.current.load(Relaxed)).filter(|offset| *offset != NONE)
    }

    fn is_open(&self) -> bool {
        !self.shared.ended.load(Relaxed) && self.turn.is_open()
    }

    /// The turn, in the process that took it.
    fn ours(&self) -> Result<&Turn, Error> {
        if self.made_in == handle::generation() {
            return Ok(&self.turn);
        }
        Err(error::forked())
    }

    fn mark_through(&self, offset: i64) -> Result<(), Error> {
        self.ours()?.mark(offset);
        Ok(())
    }

    fn mark_one(&self, offset: i64) -> Result<(), Error> {
        self.ours()?.mark_one(offset);
        Ok(())
    }

    fn pause(&self, pause_s: f64) -> Result<(), Error> {
        self.ours()?.pause(seconds("pause", pause_s)?);
        Ok(())
    }

    fn seek(&self, to: Value) -> Result<(), Error> {
        self.ours()?.seek(place::position(to)?);
        Ok(())
    }

    fn end(&self, ending: Option<Ending>) -> Result<Verdict, Error> {
        let turn = self.ours()?;
        if self.view {
            return Err(error::argument("this is a part of a batch: end the batch it is part of"));
        }
        if self.shared.ended.swap(true, Relaxed) {
            return Err(error::batch_ended());
        }
        Ok(match ending {
            Some(ending) => turn.finish(ending),
            None => {
                turn.abandon();
                Verdict::Dropped
            }
        })
    }

    fn done(ruby: &Ruby, rb_self: &Self) -> Result<RArray, Error> {
        shown(ruby, rb_self.end(Some(Ending::Done))?)
    }

    fn fail(
        ruby: &Ruby,
        rb_self: &Self,
        class: String,
        message: magnus::RString,
    ) -> Result<RArray, Error> {
        let message = crate::convert::copy(message);
        let message = String::from_utf8_lossy(&message).into_owned();
        shown(ruby, rb_self.end(Some(Ending::Failed { class, message }))?)
    }

    fn abandon(&self) -> Result<(), Error> {
        self.end(None).map(drop)
    }

    /// Writes records and commits in one, without the GVL.
    fn transact(&self, list: RArray, through: Option<i64>) -> Result<(), Error> {
        let turn = self.ours()?;
        let mut records = Vec::with_capacity(list.len());
        for index in 0..list.len() {
            records.push(Given::from_array(list.entry(index as isize)?)?.owned());
        }
        let mut records = Some(records);
        loop {
            let run = || records.take().map(|records| turn.transact(records, through));
            match without_gvl_to_the_end(run).flatten() {
                Some(Ok(())) => return Ok(()),
                Some(Err(failed)) => return Err(super::failure::raised(&failed)),
                None => check_interrupts()?,
            }
        }
    }

    fn set_deserializer(rb_self: magnus::typed_data::Obj<Self>, value: Value) {
        rb_self.deserializer.set(value.as_raw());
    }
}

/// `[:retry, in_s, attempt]` and the like.
fn shown(ruby: &Ruby, verdict: Verdict) -> Result<RArray, Error> {
    let list = ruby.ary_new();
    let seconds = |ms: u64| Duration::from_millis(ms).as_secs_f64();
    match verdict {
        Verdict::Done => list.push(ruby.to_symbol("done"))?,
        Verdict::Retry { in_ms, attempt } => {
            list.push(ruby.to_symbol("retry"))?;
            list.push(seconds(in_ms))?;
            list.push(attempt)?;
        }
        Verdict::Isolated { in_ms } => {
            list.push(ruby.to_symbol("isolated"))?;
            list.push(seconds(in_ms))?;
        }
        Verdict::DeadLetter { topic } => {
            list.push(ruby.to_symbol("dead_letter"))?;
            list.push(topic)?;
        }
        Verdict::Dropped => list.push(ruby.to_symbol("dropped"))?,
    }
    Ok(list)
}

/// Defines the class.
///
/// # Errors
/// What Ruby raises.
pub fn define(ruby: &Ruby, native: RModule) -> Result<(), Error> {
    let class = native.define_class("Batch", ruby.class_object())?;
    class.undef_default_alloc_func();
    class.define_singleton_method("build", function!(build, 3))?;
    class.define_method("outcome", method!(super::build::outcome, 0))?;
    class.define_method("kind", method!(RbBatch::kind, 0))?;
    class.define_method("route", method!(|batch: &RbBatch| batch.turn.route(), 0))?;
    class.define_method("topic", method!(RbBatch::topic, 0))?;
    class.define_method("partition", method!(|b: &RbBatch| b.turn.partition().number, 0))?;
    class.define_method("generation", method!(|b: &RbBatch| b.turn.generation(), 0))?;
    class.define_method("strand", method!(|b: &RbBatch| b.turn.strand(), 0))?;
    class.define_method("attempt", method!(|b: &RbBatch| b.turn.attempt(), 0))?;
    class.define_method("isolated?", method!(|b: &RbBatch| b.turn.isolated(), 0))?;
    class.define_method("size", method!(RbBatch::size, 0))?;
    class.define_method("bytes", method!(|b: &RbBatch| b.turn.bytes(), 0))?;
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
    class.define_method("end_offset", method!(|b: &RbBatch| b.turn.end_offset(), 0))?;
    class.define_method("revoked?", method!(|b: &RbBatch| b.turn.is_revoked(), 0))?;
    class.define_method("open?", method!(RbBatch::is_open, 0))?;
    class.define_method("describe", method!(|b: &RbBatch| b.turn.describe(), 0))?;
    class.define_method("done", method!(RbBatch::done, 0))?;
    class.define_method("failed", method!(RbBatch::fail, 2))?;
    class.define_method("abandon", method!(RbBatch::abandon, 0))?;
    class.define_method("transact", method!(RbBatch::transact, 2))?;
    class.define_method("deserializer=", method!(RbBatch::set_deserializer, 1))?;
    Ok(())
}
