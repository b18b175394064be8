//! `Chaton::Native::Scoreboard`: the shared gauges of all workers.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;

use chaton_core::process::counters::{HeapGauges, LiveCounters, TopicCounters};
use chaton_core::process::scoreboard::{Scoreboard, WorkerGauges};
use chaton_core::process::table::{Reading, Row, Table};
use chaton_memory::eden::EdenReason;
use magnus::{function, method, prelude::*, Error, RArray, RHash, RModule, RString, Ruby};

use crate::error;

/// Sets what a table shows; histograms are for the metrics only.
fn set_rows<T: Table>(
    ruby: &Ruby,
    hash: RHash,
    totals: &T::Totals,
    shows: fn(&Row<T::Totals>) -> bool,
) -> Result<(), Error> {
    for row in T::ROWS.iter().filter(|row| shows(row)) {
        match (row.read)(totals) {
            Reading::Number(number) => hash.aset(ruby.to_symbol(row.key), number)?,
            Reading::Seconds(seconds) => hash.aset(ruby.to_symbol(row.key), seconds)?,
            Reading::Times(_) => {}
        }
    }
    Ok(())
}

/// Sets the figures of a worker's heap.
pub fn set_heap(ruby: &Ruby, hash: RHash, heap: &HeapGauges) -> Result<(), Error> {
    let totals = HeapGauges::sum([heap].into_iter());
    set_rows::<HeapGauges>(ruby, hash, &totals, |_| true)?;
    hash.aset(ruby.to_symbol("eden_reason"), EdenReason::of(totals.eden_reason).word())
}

/// The scoreboard as a Ruby object. Forked children use it too, so it is no
/// [`crate::handle::Handle`].
#[magnus::wrap(class = "Chaton::Native::Scoreboard", free_immediately, size)]
pub struct RbScoreboard(pub Arc<Scoreboard>);

impl RbScoreboard {
    fn new(slots: usize) -> Result<Self, Error> {
        let scoreboard =
            Scoreboard::new(slots).map_err(|e| error::system("the shared scoreboard", &e))?;
        Ok(Self(Arc::new(scoreboard)))
    }

    fn open(fd: i32) -> Result<Self, Error> {
        let scoreboard =
            Scoreboard::open(fd).map_err(|e| error::system("the inherited scoreboard", &e))?;
        Ok(Self(Arc::new(scoreboard)))
    }

    fn fileno(&self) -> i32 {
        self.0.fd()
    }

    fn secret(ruby: &Ruby, rb_self: &Self) -> RString {
        ruby.str_from_slice(&rb_self.0.secret())
    }

    fn set_secret(ruby: &Ruby, rb_self: &Self, secret: RString) -> Result<(), Error> {
        // SAFETY: the bytes are copied before Ruby runs again.
        let bytes = unsafe { secret.as_slice() }.try_into();
        let wrong = |_| Error::new(ruby.exception_arg_error(), "the secret has another length");
        rb_self.0.set_secret(bytes.map_err(wrong)?);
        Ok(())
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    fn check(&self, ruby: &Ruby, index: usize) -> Result<(), Error> {
        if index < self.0.len() {
            return Ok(());
        }
        let message = format!("the scoreboard has {} slots, asked for {index}", self.0.len());
        Err(Error::new(ruby.exception_index_error(), message))
    }

    fn read(ruby: &Ruby, rb_self: &Self, index: usize) -> Result<RHash, Error> {
        rb_self.check(ruby, index)?;
        let slot = rb_self.0.slot(index);
        let hash = ruby.hash_new();
        let flag = |gauge: &std::sync::atomic::AtomicU32| gauge.load(Relaxed) != 0;
        hash.aset(ruby.to_symbol("pid"), slot.pid.load(Relaxed))?;
        let totals = WorkerGauges::sum([slot].into_iter());
        set_rows::<WorkerGauges>(ruby, hash, &totals, |row| !row.name.is_empty())?;
        hash.aset(ruby.to_symbol("hogged"), flag(&slot.hogged))?;
        hash.aset(ruby.to_symbol("accepting"), flag(&slot.accepting))?;
        hash.aset(ruby.to_symbol("replaced"), slot.is_replaced())?;
        hash.aset(ruby.to_symbol("requests_total"), slot.requests_total.load(Relaxed))?;
        hash.aset(ruby.to_symbol("shed_total"), slot.shed_total.load(Relaxed))?;
        hash.aset(ruby.to_symbol("finished_total"), slot.finished_total.load(Relaxed))?;
        set_heap(ruby, hash, &rb_self.0.counters(index).heap)?;
        Ok(hash)
    }

    fn topics(ruby: &Ruby, rb_self: &Self) -> Result<RArray, Error> {
        let rows = ruby.ary_new();
        for ((topic, group), totals) in rb_self.0.totals::<TopicCounters>() {
            let row = ruby.hash_new();
            row.aset(ruby.to_symbol("topic"), topic)?;
            row.aset(ruby.to_symbol("group"), group)?;
            set_rows::<TopicCounters>(ruby, row, &totals, |_| true)?;
            rows.push(row)?;
        }
        Ok(rows)
    }

    /// Event streams in all workers.
    fn event_streams(ruby: &Ruby, rb_self: &Self) -> Result<RHash, Error> {
        let hash = ruby.hash_new();
        let totals = rb_self.0.total(|counters| &counters.live);
        set_rows::<LiveCounters>(ruby, hash, &totals, |_| true)?;
        Ok(hash)
    }

    fn note_stop(ruby: &Ruby, rb_self: &Self, index: usize, replaced: bool) -> Result<(), Error> {
        rb_self.check(ruby, index)?;
        rb_self.0.slot(index).note_stop(replaced);
        Ok(())
    }

    fn note_orphaned(ruby: &Ruby, rb_self: &Self, index: usize) -> Result<(), Error> {
        rb_self.check(ruby, index)?;
        rb_self.0.slot(index).note_orphaned();
        Ok(())
    }

    fn clear(ruby: &Ruby, rb_self: &Self, index: usize) -> Result<(), Error> {
        rb_self.check(ruby, index)?;
        rb_self.0.clear(index);
        Ok(())
    }
}

/// Defines the class.
pub fn define(ruby: &Ruby, native: RModule) -> Result<(), Error> {
    let class = native.define_class("Scoreboard", ruby.class_object())?;
    class.define_singleton_method("new", function!(RbScoreboard::new, 1))?;
    class.define_singleton_method("open", function!(RbScoreboard::open, 1))?;
    class.define_method("fileno", method!(RbScoreboard::fileno, 0))?;
    class.define_method("secret", method!(RbScoreboard::secret, 0))?;
    class.define_method("secret=", method!(RbScoreboard::set_secret, 1))?;
    class.define_method("size", method!(RbScoreboard::len, 0))?;
    class.define_method("read", method!(RbScoreboard::read, 1))?;
    class.define_method("topics", method!(RbScoreboard::topics, 0))?;
    class.define_method("event_streams", method!(RbScoreboard::event_streams, 0))?;
    class.define_method("note_stop", method!(RbScoreboard::note_stop, 2))?;
    class.define_method("note_orphaned", method!(RbScoreboard::note_orphaned, 1))?;
    class.define_method("clear", method!(RbScoreboard::clear, 1))?;
    Ok(())
}
