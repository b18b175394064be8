//! `Chaton::Native::Hub` and `Chaton::Native::Seat`: the hand-over.

use std::cell::RefCell;
use std::io::Write;
use std::sync::{Arc, OnceLock};

use chaton_core::guard::Event;
use chaton_core::hub::{Hub, Options};
use chaton_core::lanes::LaneLimits;
use chaton_core::leash::Leash;
use chaton_core::seat::{Seat, Take};
use chaton_core::sentinel::{Hooks, Sentinel};
use magnus::rb_sys::protect;
use magnus::{function, method, prelude::*, Error, RArray, RHash, RModule, Ruby, Value};
use parking_lot::Mutex;

use crate::board::RbBoard;
use crate::gvl::{check_interrupts, without_gvl};
use crate::gvl_events::{Crowd, Place};
use crate::handle::Handle;
#[cfg(feature = "jobs")]
use crate::jobs::unit::{Notes, RbJob};
use crate::memory::collector::Collector;
use crate::memory::events;
use crate::settings::Settings;
#[cfg(feature = "streams")]
use crate::streams::batch::RbBatch;
use crate::unit::Unit;
use crate::web::env::EnvKit;
use crate::web::request::Request;
use crate::{error, preempt, stack};

/// Jobs that may wait where the settings do not say it: twice what is
/// prefetched at most.
const JOBS_WAITING_MAX: usize = 2_000;
/// Bytes of their documents.
const JOBS_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Bounds of the lane of streams. A partition has one batch out at a time (with
/// `order: :key` one per strand), of a bounded size, so that what waits is
/// bounded by the assignment; the engine keeps what does not fit.
const STREAMS_LIMITS: LaneLimits =
    LaneLimits { count_max: 10_000, bytes_max: 256 * 1024 * 1024, age_max_ms: 0 };

/// What stands behind a Ruby hub.
pub struct HubParts {
    /// The hub itself.
    pub hub: Arc<Hub<Unit>>,
    /// How env hashes are made; set when the web engine starts.
    pub env_kit: OnceLock<&'static EnvKit>,
    /// Where started jobs are noted; set when the jobs engine starts.
    #[cfg(feature = "jobs")]
    pub notes: OnceLock<&'static Notes>,
    /// Collects after a unit; set when the memory of this process is governed.
    pub collector: OnceLock<&'static Collector>,
    sentinel: Mutex<Option<Sentinel>>,
    leash: Option<Arc<Leash>>,
    /// Who can run, where Ruby tells.
    pub crowd: Option<Arc<Crowd>>,
}

/// The hub as a Ruby object.
#[magnus::wrap(class = "Chaton::Native::Hub", free_immediately, size)]
pub struct RbHub(pub Handle<Arc<HubParts>>);

impl RbHub {
    /// `Hub.new(settings, board, leash_fd or nil)`: starts the sentinel.
    fn new(
        ruby: &Ruby,
        settings: RHash,
        board: &RbBoard,
        leash: Option<i32>,
    ) -> Result<Self, Error> {
        let settings = Settings(settings);
        let ms = |key| settings.get::<f64>(key).map(|ms| (ms * 1e6) as u64);
        let lane = LaneLimits {
            count_max: settings.get("queue_limit")?,
            bytes_max: settings.get("queue_bytes_max")?,
            age_max_ms: settings.seconds("queue_age_s")?.as_millis() as u64,
        };
        let options = Options {
            threads_min: settings.get("threads_min")?,
            threads_max: settings.get("threads_max")?,
            lanes: vec![lane, jobs_lane(&settings)?, STREAMS_LIMITS],
            stall_ns: ms("stall_ms")?,
            preempt_ns: ms("preempt_ms")?,
            thread_idle_ns: settings.seconds("thread_idle_s")?.as_nanos() as u64,
            board: board.0.clone(),
            slot: settings.get("slot")?,
        };
        let several = options.threads_max > 1;
        let hub = Hub::new(options).map_err(|e| error::system("the hub", &e))?;
        let crowd = if several { Crowd::new(&hub) } else { None };
        let leash = leash.map(own_copy).transpose()?.map(|fd| Arc::new(Leash::new(fd)));
        let hooks = Hooks {
            // With one thread there is nobody to yield to.
            preempt: if several { preempt::preempter(ruby)? } else { None },
            report: Box::new(report),
            leash: leash.clone(),
            orphan_exit: settings.seconds("orphan_exit_s")?,
        };
        let sentinel =
            Sentinel::start(&hub, hooks).map_err(|e| error::system("the sentinel thread", &e))?;
        Ok(Self(Handle::new(Arc::new(HubParts {
            hub,
            env_kit: OnceLock::new(),
            #[cfg(feature = "jobs")]
            notes: OnceLock::new(),
            collector: OnceLock::new(),
            sentinel: Mutex::new(Some(sentinel)),
            leash,
            crowd,
        }))))
    }

    fn enter(&self) -> Result<RbSeat, Error> {
        let parts = self.0.get()?.clone();
        let place = parts.crowd.as_ref().map(Crowd::enter);
        let seat = Handle::new(RefCell::new(Some(parts.hub.enter())));
        Ok(RbSeat { parts, seat, place })
    }

    /// Waits for the next event: `[name, argument]`.
    fn next_event(ruby: &Ruby, rb_self: &Self) -> Result<RArray, Error> {
        let guard = rb_self.0.get()?.hub.guard();
        let event = loop {
            without_gvl(|| guard.wait(), &|| guard.interrupt());
            // Taken with the GVL held: see `Guard::wait`.
            if let Some(event) = guard.poll() {
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
            Event::Spawn(count) => add("spawn", ruby.into_value(count))?,
            Event::Late(id, _) => add("late", ruby.into_value(id))?,
            Event::Recover(json) => add("recover", ruby.into_value(json))?,
            Event::Signal(name) => add("signal", ruby.into_value(name))?,
            Event::Order(json) => add("order", ruby.into_value(json))?,
            Event::Collections => add("collections", nil())?,
            Event::FullWanted => add("full_wanted", nil())?,
            Event::Idle => add("idle", nil())?,
            Event::Ping => add("ping", nil())?,
            Event::Orphan => add("orphan", nil())?,
            Event::Stop => add("stop", nil())?,
        }
        Ok(answer)
    }

    fn stop_events(&self) -> Result<(), Error> {
        self.0.get()?.hub.guard().post(Event::Stop);
        Ok(())
    }

    fn pong(&self) -> Result<(), Error> {
        if let Some(leash) = &self.0.get()?.leash {
            leash.pong();
        }
        Ok(())
    }

    fn expect(&self, count: usize) -> Result<(), Error> {
        self.0.get()?.hub.expect(count);
        Ok(())
    }

    fn spawn_failed(&self, count: usize) -> Result<(), Error> {
        self.0.get()?.hub.spawn_failed(count);
        Ok(())
    }

    fn close(&self) -> Result<(), Error> {
        self.0.get()?.hub.close();
        Ok(())
    }

    fn release_waiting(&self) -> Result<usize, Error> {
        Ok(self.0.get()?.hub.release_waiting())
    }

    /// Ends the sentinel.
    fn shut(&self) -> Result<(), Error> {
        let sentinel = self.0.get()?.sentinel.lock().take();
        without_gvl(|| drop(sentinel), &|| {});
        Ok(())
    }

    fn stats(ruby: &Ruby, rb_self: &Self) -> Result<RHash, Error> {
        let stats = rb_self.0.get()?.hub.stats();
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
        for unit in rb_self.0.get()?.hub.running() {
            let hash = ruby.hash_new();
            hash.aset(ruby.to_symbol("id"), unit.id)?;
            hash.aset(ruby.to_symbol("what"), unit.what)?;
            hash.aset(ruby.to_symbol("age_ms"), unit.age_ms)?;
            hash.aset(ruby.to_symbol("thread"), unit.executor)?;
            hash.aset(ruby.to_symbol("tid"), unit.tid)?;
            hash.aset(ruby.to_symbol("cpu_ms"), unit.cpu_ms)?;
            hash.aset(ruby.to_symbol("wait_channel"), unit.wait_channel)?;
            list.push(hash)?;
        }
        Ok(list)
    }
}

/// Bounds of the lane of jobs. They do not grow old: the engine takes back what
/// waits too long.
fn jobs_lane(settings: &Settings) -> Result<LaneLimits, Error> {
    Ok(LaneLimits {
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
#[magnus::wrap(class = "Chaton::Native::Seat", free_immediately, size)]
pub struct RbSeat {
    parts: Arc<HubParts>,
    seat: Handle<RefCell<Option<Seat<Unit>>>>,
    place: Option<Arc<Place>>,
}

// SAFETY: a seat is used by the thread that entered, and dropped by the
// garbage collector, which holds the GVL like every user of it.
unsafe impl Sync for RbSeat {}

impl Drop for RbSeat {
    /// The thread may have been killed before it could leave.
    fn drop(&mut self) {
        if self.seat.is_ours() {
            self.place.as_ref().inspect(|place| place.parks());
        }
    }
}

impl RbSeat {
    /// The next unit, or nil when the thread shall end. Waits without the GVL.
    fn take(ruby: &Ruby, rb_self: &Self) -> Result<Value, Error> {
        let place = rb_self.seat.get()?.borrow();
        let Some(seat) = place.as_ref() else { return Ok(ruby.qnil().as_value()) };
        let place_events = rb_self.place.as_deref();
        if events::unit_ends() {
            if let Some(collector) = rb_self.parts.collector.get() {
                collector.after_unit()?;
            }
        }
        loop {
            place_events.inspect(|place| place.runs());
            match seat.take() {
                // Answered 503 while it waited, or nobody is left to answer.
                Take::Work(Unit::Web(exchange, _)) if exchange.is_gone() => {}
                Take::Work(Unit::Web(exchange, _)) => {
                    let Some(kit) = rb_self.parts.env_kit.get() else {
                        exchange.abandon();
                        continue;
                    };
                    events::unit_begins(seat.executor());
                    return Ok(Request::wrap(ruby, kit, exchange));
                }
                #[cfg(feature = "jobs")]
                Take::Work(Unit::Jobs(job)) => {
                    let notes = rb_self.parts.notes.get().copied();
                    if let Some(job) = RbJob::start(ruby, notes, seat.index(), job) {
                        events::unit_begins(seat.executor());
                        return Ok(job);
                    }
                }
                #[cfg(feature = "streams")]
                Take::Work(Unit::Streams(turn)) => {
                    if let Some(batch) = RbBatch::start(ruby, turn) {
                        events::unit_begins(seat.executor());
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
                    let unparker = seat.unparker();
                    stack::wipe();
                    without_gvl(|| seat.wait(), &|| unparker.unpark());
                    check_interrupts()?;
                }
            }
        }
    }

    /// Frees the place now; the thread is ending.
    fn leave(&self) -> Result<(), Error> {
        events::unit_ends();
        drop(self.seat.get()?.take());
        self.place.as_ref().inspect(|place| place.leaves());
        Ok(())
    }

    fn index(&self) -> Result<Option<usize>, Error> {
        Ok(self.seat.get()?.borrow().as_ref().map(Seat::index))
    }
}

/// Defines the classes.
///
/// # Errors
/// What Ruby raises.
pub fn define(ruby: &Ruby, native: RModule) -> Result<(), Error> {
    let class = native.define_class("Hub", ruby.class_object())?;
    class.define_singleton_method("new", function!(RbHub::new, 3))?;
    class.define_method("enter", method!(RbHub::enter, 0))?;
    class.define_method("next_event", method!(RbHub::next_event, 0))?;
    class.define_method("stop_events", method!(RbHub::stop_events, 0))?;
    class.define_method("pong", method!(RbHub::pong, 0))?;
    class.define_method("expect", method!(RbHub::expect, 1))?;
    class.define_method("spawn_failed", method!(RbHub::spawn_failed, 1))?;
    class.define_method("close", method!(RbHub::close, 0))?;
    class.define_method("release_waiting", method!(RbHub::release_waiting, 0))?;
    class.define_method("shut", method!(RbHub::shut, 0))?;
    class.define_method("stats", method!(RbHub::stats, 0))?;
    class.define_method("running", method!(RbHub::running, 0))?;
    let seat = native.define_class("Seat", ruby.class_object())?;
    seat.undef_default_alloc_func();
    seat.define_method("take", method!(RbSeat::take, 0))?;
    seat.define_method("leave", method!(RbSeat::leave, 0))?;
    seat.define_method("index", method!(RbSeat::index, 0))?;
    Ok(())
}
