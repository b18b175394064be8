//! `Chaton::Native::Pool` and `Chaton::Native::PoolThread`: the hand-over.

use std::cell::RefCell;
use std::io::Write;
use std::sync::{Arc, OnceLock};

use chaton_core::pool::queue::QueueLimits;
use chaton_core::pool::scheduler::{Scheduler, SchedulerHooks};
use chaton_core::pool::thread::{PoolThread, Take};
use chaton_core::pool::{Pool, PoolConfig};
use chaton_core::process::channel::SupervisorChannel;
use chaton_core::process::events::SupportEvent;
use magnus::rb_sys::protect;
use magnus::{function, method, prelude::*, Error, RArray, RHash, RModule, Ruby, Value};
use parking_lot::Mutex;

use crate::gvl::{check_interrupts, without_gvl};
use crate::gvl_events::{Crowd, Place};
use crate::handle::Handle;
#[cfg(feature = "jobs")]
use crate::jobs::job::{InFlightSlot, RbJob};
use crate::memory::collector::Collector;
use crate::memory::gc_monitor;
use crate::scoreboard::RbScoreboard;
use crate::settings::Settings;
#[cfg(feature = "streams")]
use crate::streams::batch::RbBatch;
use crate::unit::Unit;
use crate::web::env_builder::EnvBuilder;
use crate::web::request::Request;
use crate::{error, preempt, stack};

/// Jobs that may wait where the settings do not say it: twice what is
/// prefetched at most.
const JOBS_WAITING_MAX: usize = 2_000;
/// Bytes of their documents.
const JOBS_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Bounds of the class of streams. A partition has one batch out at a time (with
/// `order: :key` one per strand), of a bounded size, so that what waits is
/// bounded by the assignment; the engine keeps what does not fit.
const STREAMS_LIMITS: QueueLimits =
    QueueLimits { count_max: 10_000, bytes_max: 256 * 1024 * 1024, age_max_ms: 0 };

/// What stands behind a Ruby pool.
pub struct PoolParts {
    /// The pool itself.
    pub pool: Arc<Pool<Unit>>,
    /// How env hashes are made; set when the web engine starts.
    pub env_builder: OnceLock<&'static EnvBuilder>,
    /// Where started jobs are noted; set when the jobs engine starts.
    #[cfg(feature = "jobs")]
    pub notes: OnceLock<&'static InFlightSlot>,
    /// Collects after a unit; set when the memory of this process is governed.
    pub collector: OnceLock<&'static Collector>,
    scheduler: Mutex<Option<Scheduler>>,
    channel: Option<Arc<SupervisorChannel>>,
    /// Who can run, where Ruby tells.
    pub crowd: Option<Arc<Crowd>>,
}

/// The pool as a Ruby object.
#[magnus::wrap(class = "Chaton::Native::Pool", free_immediately, size)]
pub struct RbPool(pub Handle<Arc<PoolParts>>);

impl RbPool {
    /// `Pool.new(settings, scoreboard, leash_fd or nil)`: starts the scheduler.
    fn new(
        ruby: &Ruby,
        settings: RHash,
        scoreboard: &RbScoreboard,
        channel: Option<i32>,
    ) -> Result<Self, Error> {
        let settings = Settings(settings);
        let ms = |key| settings.get::<f64>(key).map(|ms| (ms * 1e6) as u64);
        let class = QueueLimits {
            count_max: settings.get("queue_limit")?,
            bytes_max: settings.get("queue_bytes_max")?,
            age_max_ms: settings.seconds("queue_age_s")?.as_millis() as u64,
        };
        let options = PoolConfig {
            threads_min: settings.get("threads_min")?,
            threads_max: settings.get("threads_max")?,
            queue: vec![class, jobs_limits(&settings)?, STREAMS_LIMITS],
            stall_ns: ms("stall_ms")?,
            preempt_ns: ms("preempt_ms")?,
            thread_idle_ns: settings.seconds("thread_idle_s")?.as_nanos() as u64,
            scoreboard: scoreboard.0.clone(),
            slot: settings.get("slot")?,
        };
        let several = options.threads_max > 1;
        let pool = Pool::new(options).map_err(|e| error::system("the pool", &e))?;
        let crowd = if several { Crowd::new(&pool) } else { None };
        let channel =
            channel.map(own_copy).transpose()?.map(|fd| Arc::new(SupervisorChannel::new(fd)));
        let hooks = SchedulerHooks {
            // With one thread there is nobody to yield to.
            preempt: if several { preempt::preempter(ruby)? } else { None },
            report: Box::new(report),
            channel: channel.clone(),
            orphan_exit: settings.seconds("orphan_exit_s")?,
        };
        let scheduler = Scheduler::start(&pool, hooks)
            .map_err(|e| error::system("the scheduler thread", &e))?;
        Ok(Self(Handle::new(Arc::new(PoolParts {
            pool,
            env_builder: OnceLock::new(),
            #[cfg(feature = "jobs")]
            notes: OnceLock::new(),
            collector: OnceLock::new(),
            scheduler: Mutex::new(Some(scheduler)),
            channel,
            crowd,
        }))))
    }

    fn enter(&self) -> Result<RbPoolThread, Error> {
        let parts = self.0.get()?.clone();
        let place = parts.crowd.as_ref().map(Crowd::enter);
        let thread = Handle::new(RefCell::new(Some(parts.pool.enter())));
        Ok(RbPoolThread { parts, thread, place })
    }

    /// Waits for the next event: `[name, argument]`.
    fn next_event(ruby: &Ruby, rb_self: &Self) -> Result<RArray, Error> {
        let events = rb_self.0.get()?.pool.events();
        let event = loop {
            without_gvl(|| events.wait(), &|| events.interrupt());
            // Taken with the GVL held: see `Guard::wait`.
            if let Some(event) = events.poll() {
                break event;
            }
            check_interrupts()?;
        };
        let answer = ruby.ary_new_capa(2);
        let add = |name, argument: Value| {
            answer.push(ruby.to_symbol(name))?;
            answer.push(argument)
        };
        let nil = || ruby.qnil().as_value();
        match event {
            SupportEvent::Spawn(count) => add("spawn", ruby.into_value(count))?,
            SupportEvent::Late(id, _) => add("late", ruby.into_value(id))?,
            SupportEvent::Recover(json) => add("recover", ruby.into_value(json))?,
            SupportEvent::Signal(name) => add("signal", ruby.into_value(name))?,
            SupportEvent::Order(json) => add("order", ruby.into_value(json))?,
            SupportEvent::Collections => add("collections", nil())?,
            SupportEvent::FullWanted => add("full_wanted", nil())?,
            SupportEvent::Idle => add("idle", nil())?,
            SupportEvent::Ping => add("ping", nil())?,
            SupportEvent::Orphan => add("orphan", nil())?,
            SupportEvent::Stop => add("stop", nil())?,
        }
        Ok(answer)
    }

    fn stop_events(&self) -> Result<(), Error> {
        self.0.get()?.pool.events().post(SupportEvent::Stop);
        Ok(())
    }

    fn pong(&self) -> Result<(), Error> {
        if let Some(channel) = &self.0.get()?.channel {
            channel.pong();
        }
        Ok(())
    }

    fn expect(&self, count: usize) -> Result<(), Error> {
        self.0.get()?.pool.expect(count);
        Ok(())
    }

    fn spawn_failed(&self, count: usize) -> Result<(), Error> {
        self.0.get()?.pool.spawn_failed(count);
        Ok(())
    }

    fn close(&self) -> Result<(), Error> {
        self.0.get()?.pool.close();
        Ok(())
    }

    fn release_waiting(&self) -> Result<usize, Error> {
        Ok(self.0.get()?.pool.release_waiting())
    }

    /// Ends the scheduler.
    fn shut(&self) -> Result<(), Error> {
        let scheduler = self.0.get()?.scheduler.lock().take();
        without_gvl(|| drop(scheduler), &|| {});
        Ok(())
    }

    fn stats(ruby: &Ruby, rb_self: &Self) -> Result<RHash, Error> {
        let stats = rb_self.0.get()?.pool.stats();
        let hash = ruby.hash_new();
        for (name, value) in [
            ("waiting", stats.waiting as u64),
            ("oldest_age_ms", stats.oldest_age_ms),
            ("running", stats.running as u64),
            ("threads", stats.threads as u64),
            ("width", stats.width as u64),
            ("taken", stats.taken),
            ("finished", stats.finished),
            ("wakes", stats.wakes),
            ("looks", stats.looks),
            ("stalls", stats.stalls),
            ("preemptions", stats.preemptions),
        ] {
            hash.aset(ruby.to_symbol(name), value)?;
        }
        Ok(hash)
    }

    /// What runs now: an Array of Hashes.
    fn running(ruby: &Ruby, rb_self: &Self) -> Result<RArray, Error> {
        let list = ruby.ary_new();
        for unit in rb_self.0.get()?.pool.running() {
            let hash = ruby.hash_new();
            hash.aset(ruby.to_symbol("id"), unit.id)?;
            hash.aset(ruby.to_symbol("what"), unit.what)?;
            hash.aset(ruby.to_symbol("age_ms"), unit.age_ms)?;
            hash.aset(ruby.to_symbol("thread"), unit.thread)?;
            hash.aset(ruby.to_symbol("tid"), unit.tid)?;
            hash.aset(ruby.to_symbol("cpu_ms"), unit.cpu_ms)?;
            hash.aset(ruby.to_symbol("wait_channel"), unit.wait_channel)?;
            list.push(hash)?;
        }
        Ok(list)
    }
}

/// Bounds of the class of jobs. They do not grow old: the engine takes back what
/// waits too long.
fn jobs_limits(settings: &Settings) -> Result<QueueLimits, Error> {
    Ok(QueueLimits {
        count_max: settings.optional("jobs_queue_limit")?.unwrap_or(JOBS_WAITING_MAX),
        bytes_max: settings.optional("jobs_queue_bytes_max")?.unwrap_or(JOBS_BYTES_MAX),
        age_max_ms: 0,
    })
}

/// Writes a line to the log from a Rust thread, which may not call Ruby's
/// logger: to standard error, in the readable form.
pub fn report(line: &str) {
    // A closed standard error must not end the thread that reports.
    let _ = writeln!(std::io::stderr(), "chaton [{}] WARN  {line}", std::process::id());
}

/// A copy of the descriptor, so that Ruby's IO object keeps its own.
fn own_copy(fd: i32) -> Result<std::os::fd::OwnedFd, Error> {
    // SAFETY: Ruby holds the descriptor open during this call.
    let borrowed = unsafe { std::os::fd::BorrowedFd::borrow_raw(fd) };
    borrowed.try_clone_to_owned().map_err(|e| error::system("the line to the supervisor", &e))
}

/// A pool thread's place.
#[magnus::wrap(class = "Chaton::Native::PoolThread", free_immediately, size)]
pub struct RbPoolThread {
    parts: Arc<PoolParts>,
    thread: Handle<RefCell<Option<PoolThread<Unit>>>>,
    place: Option<Arc<Place>>,
}

// SAFETY: a thread is used by the thread that entered, and dropped by the
// garbage collector, which holds the GVL like every user of it.
unsafe impl Sync for RbPoolThread {}

impl Drop for RbPoolThread {
    /// The thread may have been killed before it could leave.
    fn drop(&mut self) {
        if self.thread.is_ours() {
            self.place.as_ref().inspect(|place| place.parks());
        }
    }
}

impl RbPoolThread {
    /// The next unit, or nil when the thread shall end. Waits without the GVL.
    fn take(ruby: &Ruby, rb_self: &Self) -> Result<Value, Error> {
        let place = rb_self.thread.get()?.borrow();
        let Some(thread) = place.as_ref() else { return Ok(ruby.qnil().as_value()) };
        let place_events = rb_self.place.as_deref();
        if gc_monitor::unit_ends() {
            if let Some(collector) = rb_self.parts.collector.get() {
                collector.after_unit()?;
            }
        }
        loop {
            place_events.inspect(|place| place.runs());
            match thread.take() {
                // Answered 503 while it waited, or nobody is left to answer.
                Take::Work(Unit::Web(exchange, _)) if exchange.is_gone() => {}
                Take::Work(Unit::Web(exchange, _)) => {
                    let Some(kit) = rb_self.parts.env_builder.get() else {
                        exchange.abandon();
                        continue;
                    };
                    gc_monitor::unit_begins(thread.thread());
                    return Ok(Request::wrap(ruby, kit, exchange));
                }
                #[cfg(feature = "jobs")]
                Take::Work(Unit::Jobs(job)) => {
                    let notes = rb_self.parts.notes.get().copied();
                    if let Some(job) = RbJob::start(ruby, notes, thread.index(), job) {
                        gc_monitor::unit_begins(thread.thread());
                        return Ok(job);
                    }
                }
                #[cfg(feature = "streams")]
                Take::Work(Unit::Streams(batch)) => {
                    if let Some(batch) = RbBatch::start(ruby, batch) {
                        gc_monitor::unit_begins(thread.thread());
                        return Ok(batch);
                    }
                }
                Take::Leave => return Ok(ruby.qnil().as_value()),
                Take::Yield => {
                    protect(|| {
                        // SAFETY: the GVL is held; this frame owns nothing.
                        unsafe { rb_sys::rb_thread_schedule() };
                        rb_sys::Qnil as rb_sys::VALUE
                    })?;
                }
                Take::Wait => {
                    place_events.inspect(|place| place.parks());
                    let unparker = thread.unparker();
                    stack::wipe();
                    without_gvl(|| thread.wait(), &|| unparker.unpark());
                    check_interrupts()?;
                }
            }
        }
    }

    /// Frees the place now; the thread is ending.
    fn leave(&self) -> Result<(), Error> {
        gc_monitor::unit_ends();
        drop(self.thread.get()?.take());
        self.place.as_ref().inspect(|place| place.leaves());
        Ok(())
    }

    fn index(&self) -> Result<Option<usize>, Error> {
        Ok(self.thread.get()?.borrow().as_ref().map(PoolThread::index))
    }
}

/// Defines the classes.
///
/// # Errors
/// What Ruby raises.
pub fn define(ruby: &Ruby, native: RModule) -> Result<(), Error> {
    let class = native.define_class("Pool", ruby.class_object())?;
    class.define_singleton_method("new", function!(RbPool::new, 3))?;
    class.define_method("enter", method!(RbPool::enter, 0))?;
    class.define_method("next_event", method!(RbPool::next_event, 0))?;
    class.define_method("stop_events", method!(RbPool::stop_events, 0))?;
    class.define_method("pong", method!(RbPool::pong, 0))?;
    class.define_method("expect", method!(RbPool::expect, 1))?;
    class.define_method("spawn_failed", method!(RbPool::spawn_failed, 1))?;
    class.define_method("close", method!(RbPool::close, 0))?;
    class.define_method("release_waiting", method!(RbPool::release_waiting, 0))?;
    class.define_method("shut", method!(RbPool::shut, 0))?;
    class.define_method("stats", method!(RbPool::stats, 0))?;
    class.define_method("running", method!(RbPool::running, 0))?;
    let thread = native.define_class("PoolThread", ruby.class_object())?;
    thread.undef_default_alloc_func();
    thread.define_method("take", method!(RbPoolThread::take, 0))?;
    thread.define_method("leave", method!(RbPoolThread::leave, 0))?;
    thread.define_method("index", method!(RbPoolThread::index, 0))?;
    Ok(())
}
