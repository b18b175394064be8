//! `Chaton::Native::Job`: one claimed job as a Ruby object.
//!
//! It ends once. When the collector frees it open, the job goes back to the front of its queue.

use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::sync::Arc;

use chaton_core::clock;
use chaton_core::process::in_flight::InFlightTable;
use chaton_core::work::Work;
use chaton_jobs::document::enqueued_at;
use chaton_jobs::engine::Job;
use chaton_jobs::outcome::{Ack, Outcome};
use magnus::gc::Marker;
use magnus::rb_sys::{AsRawValue, FromRawValue};
use magnus::{
    method, prelude::*, DataTypeFunctions, Error, RModule, RString, Ruby, TypedData, Value,
};
use rb_sys::VALUE;

use super::from_json;
use crate::convert::copy;
use crate::convert::text;
use crate::names;
use crate::{error, handle, traces};

/// This worker's slot in the in-flight table, where its threads enter the jobs they start.
pub struct InFlightSlot {
    /// The table, shared with the supervisor; `None` without a supervisor.
    pub in_flight: Option<Arc<InFlightTable>>,
    /// Number of the slot.
    pub slot: usize,
}

impl InFlightSlot {
    fn start(&self, thread: usize, job: &Job) {
        if let Some(in_flight) = &self.in_flight {
            let now_ms = (clock::wall_s() * 1e3) as u64;
            in_flight.start(self.slot, thread, job.ticket(), job.document().jid(), now_ms);
        }
    }

    fn end(&self, thread: usize, job: &Job) {
        if let Some(in_flight) = &self.in_flight {
            in_flight.end(self.slot, thread, job.ticket());
        }
    }
}

/// A claimed job.
#[derive(TypedData)]
#[magnus(class = "Chaton::Native::Job", mark, free_immediately, size)]
pub struct RbJob {
    made_in: u32,
    thread: usize,
    slot: &'static InFlightSlot,
    job: ManuallyDrop<Arc<Job>>,
    args: Cell<VALUE>,
    ended: Cell<bool>,
}

// SAFETY: only used and dropped by threads that hold the GVL.
unsafe impl Send for RbJob {}
// SAFETY: as above.
unsafe impl Sync for RbJob {}

impl DataTypeFunctions for RbJob {
    fn mark(&self, marker: &Marker) {
        // SAFETY: nil, or the Array that `args` made.
        marker.mark(unsafe { Value::from_raw(self.args.get()) });
    }
}

impl Drop for RbJob {
    fn drop(&mut self) {
        // In a forked child this is a copy; the parent ends the job.
        if self.made_in != handle::generation() {
            return;
        }
        if !self.ended.get() {
            self.slot.end(self.thread, &self.job);
            self.job.give_back();
        }
        // SAFETY: dropped once, here, and not used after.
        unsafe { ManuallyDrop::drop(&mut self.job) };
    }
}

impl RbJob {
    /// Starts the job on a thread; `None` when it may not be started any more.
    pub fn start(
        ruby: &Ruby,
        slot: &'static InFlightSlot,
        thread: usize,
        job: Arc<Job>,
    ) -> Option<Value> {
        if !job.may_start() {
            job.give_back();
            return None;
        }
        slot.start(thread, &job);
        job.start(thread);
        traces::job_begins(&job);
        let job = Self {
            made_in: handle::generation(),
            thread,
            slot,
            job: ManuallyDrop::new(job),
            args: Cell::new(rb_sys::Qnil as VALUE),
            ended: Cell::new(false),
        };
        Some(ruby.obj_wrap(job).as_value())
    }

    fn end(&self, outcome: Outcome) -> Result<(), Error> {
        if self.made_in != handle::generation() {
            return Err(error::forked());
        }
        if self.ended.replace(true) {
            return Err(error::job_ended());
        }
        self.slot.end(self.thread, &self.job);
        // Ignored when the engine sent it back meanwhile: its next run counts.
        self.job.finish(outcome);
        Ok(())
    }

    /// Owner and ticket of the job, which this process runs.
    ///
    /// # Errors
    /// `Chaton::Error` in a child of this process, or when it has ended.
    pub fn entry(&self) -> Result<(&str, u64), Error> {
        if self.made_in != handle::generation() {
            return Err(error::forked());
        }
        if self.ended.get() {
            return Err(error::job_ended());
        }
        Ok((self.job.owner(), self.job.ticket()))
    }

    /// Acknowledges it by `write`, which writes more in the same transaction. The job goes on if it fails.
    ///
    /// # Errors
    /// Those of `write`.
    pub fn commit(&self, write: impl FnOnce(&str, &Ack) -> Result<(), Error>) -> Result<(), Error> {
        self.entry()?;
        self.job.commit(write)?;
        self.ended.set(true);
        self.slot.end(self.thread, &self.job);
        Ok(())
    }

    fn class_name(&self) -> Value {
        names::name(self.job.document().class())
    }

    /// The arguments, made at the first call.
    fn args(ruby: &Ruby, rb_self: &Self) -> Result<Value, Error> {
        let made = rb_self.args.get();
        if made != rb_sys::Qnil as VALUE {
            // SAFETY: the Array made before, kept alive by `mark`.
            return Ok(unsafe { Value::from_raw(made) });
        }
        let args = from_json::parse(ruby, rb_self.job.document().args())?;
        rb_self.args.set(args.as_raw());
        Ok(args)
    }

    fn jid(&self) -> &str {
        self.job.document().jid()
    }

    fn queue(&self) -> Value {
        names::name(self.job.queue())
    }

    fn payload(&self) -> Value {
        text(self.job.document().payload())
    }

    fn ticket(&self) -> u64 {
        self.job.ticket()
    }

    fn enqueued_at(&self) -> Option<f64> {
        enqueued_at(self.job.document().payload())
    }

    fn bid(&self) -> Option<&str> {
        self.job.document().bid()
    }

    fn is_due(&self) -> bool {
        self.job.is_due()
    }

    fn is_open(&self) -> bool {
        self.job.is_open()
    }

    fn describe(&self) -> String {
        self.job.describe()
    }

    fn is_cancelled(&self) -> bool {
        self.job.is_cancelled()
    }

    fn is_past_deadline(&self) -> bool {
        self.job.is_past_deadline()
    }

    fn display_class(&self) -> String {
        self.job.document().display_class()
    }

    fn report_failure(&self) -> bool {
        self.job.report_failure()
    }

    fn put_back(&self) -> Result<bool, Error> {
        if self.made_in != handle::generation() {
            return Err(error::forked());
        }
        if self.ended.get() {
            return Err(error::job_ended());
        }
        let is_back = self.job.put_back();
        if is_back {
            self.ended.set(true);
            self.slot.end(self.thread, &self.job);
        }
        Ok(is_back)
    }

    fn ack(&self) -> Result<(), Error> {
        self.end(Outcome::Ack)
    }

    fn retry(&self, at: f64, payload: RString) -> Result<(), Error> {
        self.end(Outcome::Retry { at: self.job.store_time(time(at)?), payload: copy(payload) })
    }

    fn discard(&self) -> Result<(), Error> {
        self.end(Outcome::Discard)
    }

    fn dead(&self, payload: Option<RString>) -> Result<(), Error> {
        self.end(Outcome::Dead {
            at: self.job.store_time(clock::wall_s()),
            payload: payload.map(copy),
        })
    }

    fn reschedule(&self, at: f64) -> Result<(), Error> {
        self.end(Outcome::reschedule(self.job.store_time(time(at)?)))
    }

    fn requeue(&self) -> Result<(), Error> {
        self.end(Outcome::requeue())
    }
}

/// Refuses infinity and NaN.
fn time(at: f64) -> Result<f64, Error> {
    let finite = at.is_finite().then_some(at);
    finite.ok_or_else(|| error::argument(format!("a time must be a finite number, not {at}")))
}

/// Defines the class.
pub fn define(ruby: &Ruby, native: RModule) -> Result<(), Error> {
    let class = native.define_class("Job", ruby.class_object())?;
    class.undef_default_alloc_func();
    class.define_method("class_name", method!(RbJob::class_name, 0))?;
    class.define_method("args", method!(RbJob::args, 0))?;
    class.define_method("jid", method!(RbJob::jid, 0))?;
    class.define_method("queue", method!(RbJob::queue, 0))?;
    class.define_method("payload", method!(RbJob::payload, 0))?;
    class.define_method("ticket", method!(RbJob::ticket, 0))?;
    class.define_method("enqueued_at", method!(RbJob::enqueued_at, 0))?;
    class.define_method("bid", method!(RbJob::bid, 0))?;
    class.define_method("due?", method!(RbJob::is_due, 0))?;
    class.define_method("open?", method!(RbJob::is_open, 0))?;
    class.define_method("describe", method!(RbJob::describe, 0))?;
    class.define_method("cancelled?", method!(RbJob::is_cancelled, 0))?;
    class.define_method("deadline_over?", method!(RbJob::is_past_deadline, 0))?;
    class.define_method("display_class", method!(RbJob::display_class, 0))?;
    class.define_method("report_failure", method!(RbJob::report_failure, 0))?;
    class.define_method("put_back", method!(RbJob::put_back, 0))?;
    class.define_method("ack", method!(RbJob::ack, 0))?;
    class.define_method("retry", method!(RbJob::retry, 2))?;
    class.define_method("discard", method!(RbJob::discard, 0))?;
    class.define_method("dead", method!(RbJob::dead, 1))?;
    class.define_method("reschedule", method!(RbJob::reschedule, 1))?;
    class.define_method("requeue", method!(RbJob::requeue, 0))?;
    Ok(())
}
