//! `Chaton::Native::Pool` and `Chaton::Native::PoolThread`: how Ruby threads get work.

use std::cell::RefCell;
use std::ffi::c_void;
use std::sync::{Arc, OnceLock};

use chaton_core::pool::scheduler::{Scheduler, SchedulerHooks};
use chaton_core::pool::thread::{PoolThread, Take};
use chaton_core::pool::{Pool, PoolSettings};
use chaton_core::process::channel::SupervisorChannel;
use chaton_core::process::events::SupportEvent;
use chaton_core::process::supervisor_watch::SupervisorWatch;
use chaton_core::work::{Role, Work};
use magnus::{function, method, prelude::*, Error, IntoValue, RArray, RModule, Ruby, Value};
use parking_lot::Mutex;

use crate::convert::to_ruby;
use crate::document_sections::DocumentSections;
use crate::gvl::{check_interrupts, let_others_run, without_gvl};
use crate::gvl_tracker::{self, TrackedThread};
use crate::handle::Handle;
use crate::memory::{gc_monitor, thread_memory};
use crate::scoreboard::RbScoreboard;
use crate::symbol::symbol;
use crate::{error, preempt, stack, traces};

/// Wraps work as a Ruby object for the thread with this index, which has taken it.
/// Returns `None` and releases the work when it may no longer start.
pub type WrapWork = Box<dyn Fn(&Ruby, Arc<dyn Work>, usize) -> Option<Value> + Send + Sync>;

/// What is done between two units of work.
pub trait BetweenUnits: Sync {
    /// A pool thread has ended a unit and is about to take the next.
    ///
    /// # Errors
    /// What Ruby raises meanwhile.
    fn after_unit(&self) -> Result<(), Error>;
}

/// The state of a Ruby pool.
pub struct PoolInner {
    /// The pool itself.
    pub pool: Arc<Pool>,
    /// The settings of this process, of which each engine takes its section.
    pub document: DocumentSections,
    /// How each engine's work becomes a Ruby object, set when the engine starts.
    wrappers: [OnceLock<WrapWork>; Role::ALL.len()],
    /// Set when memory is governed.
    pub between_units: OnceLock<&'static dyn BetweenUnits>,
    scheduler: Mutex<Option<Scheduler>>,
    channel: Option<Arc<SupervisorChannel>>,
}

impl PoolInner {
    /// Sets how an engine's work becomes a Ruby object. Only the first call for a role
    /// has an effect.
    pub fn register(&self, role: Role, wrap: WrapWork) {
        let _ = self.wrappers[role as usize].set(wrap);
    }

    /// The work as a Ruby object; `None` when it must not run.
    fn wrap(&self, ruby: &Ruby, work: Arc<dyn Work>, thread: usize) -> Option<Value> {
        match self.wrappers[work.role() as usize].get() {
            Some(wrap) => wrap(ruby, work, thread),
            None => {
                work.release();
                None
            }
        }
    }
}

/// The pool as a Ruby object.
#[magnus::wrap(class = "Chaton::Native::Pool", free_immediately, size)]
pub struct RbPool(pub Handle<Arc<PoolInner>>);

impl RbPool {
    /// `Pool.new(document, scoreboard, channel_fd or nil)`: starts the scheduler.
    fn new(
        ruby: &Ruby,
        document: String,
        scoreboard: &RbScoreboard,
        channel: Option<i32>,
    ) -> Result<Self, Error> {
        let document = DocumentSections::new(&document)?;
        let mut settings: PoolSettings = document.section("pool")?;
        let several = settings.threads_max > 1;
        settings.cpu_affinity &= gvl_tracker::may_bind();
        let (preempt, orphan_exit) = (settings.preempt, settings.orphan_exit);
        let pool =
            Pool::new(settings, scoreboard.0.clone(), several && gvl_tracker::is_available())
                .map_err(|e| error::system("the pool", &e))?;
        gvl_tracker::track_outsiders(&pool);
        let channel =
            channel.map(own_copy).transpose()?.map(|fd| Arc::new(SupervisorChannel::new(fd)));
        let hooks = SchedulerHooks {
            // A single thread has no other thread to yield to.
            preempt: if several && preempt { preempt::preempter(ruby)? } else { None },
            supervisor: SupervisorWatch::new(channel.clone(), orphan_exit),
        };
        let scheduler = Scheduler::start(&pool, hooks)
            .map_err(|e| error::system("the scheduler thread", &e))?;
        Ok(Self(Handle::new(Arc::new(PoolInner {
            pool,
            document,
            wrappers: Default::default(),
            between_units: OnceLock::new(),
            scheduler: Mutex::new(Some(scheduler)),
            channel,
        }))))
    }

    fn enter(&self) -> Result<RbPoolThread, Error> {
        let inner = self.0.get()?.clone();
        keep_native_thread();
        let thread = inner.pool.enter();
        let tracked = TrackedThread::enter(&inner.pool, thread.thread());
        thread_memory::reduce(thread.index());
        Ok(RbPoolThread { inner, thread: Handle::new(RefCell::new(Some(thread))), tracked })
    }

    /// Waits for the next event: `[name, argument]`.
    fn next_event(ruby: &Ruby, rb_self: &Self) -> Result<RArray, Error> {
        let events = &rb_self.0.get()?.pool.events;
        let event = loop {
            without_gvl(|| events.wait(), &|| events.interrupt());
            // Taken with the GVL held: see `SupportEvents::wait`.
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
            SupportEvent::Late(role, id, _) => {
                add("late", (role.name(), id).into_value_with(ruby))?
            }
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
        self.0.get()?.pool.events.post(SupportEvent::Stop);
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

    /// Ends the scheduler.
    fn shut(&self) -> Result<(), Error> {
        let scheduler = self.0.get()?.scheduler.lock().take();
        without_gvl(|| drop(scheduler), &|| {});
        Ok(())
    }

    fn stats(ruby: &Ruby, rb_self: &Self) -> Result<Value, Error> {
        to_ruby(ruby, &rb_self.0.get()?.pool.stats())
    }

    /// The work that is running now: an Array of Hashes.
    fn running(ruby: &Ruby, rb_self: &Self) -> Result<Value, Error> {
        to_ruby(ruby, &rb_self.0.get()?.pool.running())
    }
}

/// With `RUBY_MN_THREADS`, Ruby threads move between native threads. The calling one
/// stays on its own from now on: CPU clocks and thread-locals belong to native threads.
fn keep_native_thread() {
    if let Some(keep) = symbol(c"rb_thread_lock_native_thread") {
        // SAFETY: signature of ruby/thread.h, 3.4 and later; called by a Ruby thread.
        unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> bool>(keep)() };
    }
}

/// A copy of the descriptor; Ruby's IO object keeps its own.
fn own_copy(fd: i32) -> Result<std::os::fd::OwnedFd, Error> {
    // SAFETY: Ruby holds the descriptor open during this call.
    let borrowed = unsafe { std::os::fd::BorrowedFd::borrow_raw(fd) };
    borrowed.try_clone_to_owned().map_err(|e| error::system("the connection to the supervisor", &e))
}

/// A pool thread's handle of the pool.
#[magnus::wrap(class = "Chaton::Native::PoolThread", free_immediately, size)]
pub struct RbPoolThread {
    inner: Arc<PoolInner>,
    thread: Handle<RefCell<Option<PoolThread>>>,
    tracked: Option<Arc<TrackedThread>>,
}

// SAFETY: only the thread that entered uses it. The garbage collector drops it, with
// the GVL held like every user of it.
unsafe impl Sync for RbPoolThread {}

impl Drop for RbPoolThread {
    /// The thread may have been killed before it could leave.
    fn drop(&mut self) {
        if self.thread.is_ours() {
            self.tracked.as_ref().inspect(|tracked| tracked.is_gone());
        }
    }
}

/// What a pool thread is to do.
enum Next {
    Work(Value),
    Wait,
    Leave,
}

/// What a pool thread has done.
enum Ran {
    Unit,
    Nothing,
    Last,
}

impl RbPoolThread {
    /// The next unit of work, or nil when the thread must end. Waits without the GVL.
    fn take(ruby: &Ruby, rb_self: &Self) -> Result<Value, Error> {
        rb_self.work_ends()?;
        loop {
            match rb_self.next(ruby)? {
                Next::Work(work) => return Ok(work),
                Next::Leave => return Ok(ruby.qnil().as_value()),
                Next::Wait => rb_self.wait()?,
            }
        }
    }

    /// Yields one unit of work after another until the thread must end.
    ///
    /// The loop is here, not in Ruby, for what a waiting thread keeps alive (see [`stack`]): the frames above the wait
    /// were all made before the first unit, so what they leave unwritten holds nothing of a later one.
    fn each_work(ruby: &Ruby, rb_self: &Self) -> Result<(), Error> {
        loop {
            match rb_self.run_next(ruby)? {
                Ran::Unit => rb_self.work_ends()?,
                Ran::Nothing => {
                    stack::wipe();
                    rb_self.wait()?;
                }
                Ran::Last => return Ok(()),
            }
        }
    }

    /// Has the block run a unit, if there is one. Its frame, which holds the unit, is gone during the wait.
    #[inline(never)]
    fn run_next(&self, ruby: &Ruby) -> Result<Ran, Error> {
        match self.next(ruby)? {
            Next::Work(work) => ruby.yield_value::<_, Value>(work).map(|_| Ran::Unit),
            Next::Wait => Ok(Ran::Nothing),
            Next::Leave => Ok(Ran::Last),
        }
    }

    /// The unit of work before, if any, has ended.
    fn work_ends(&self) -> Result<(), Error> {
        traces::work_ends();
        match self.inner.between_units.get().filter(|_| gc_monitor::work_ends()) {
            Some(collector) => collector.after_unit(),
            None => Ok(()),
        }
    }

    /// What this thread is to do. Never waits.
    fn next(&self, ruby: &Ruby) -> Result<Next, Error> {
        let thread = self.thread.get()?.borrow();
        let Some(thread) = thread.as_ref() else { return Ok(Next::Leave) };
        loop {
            match thread.take() {
                Take::Work(work) => {
                    if let Some(work) = self.inner.wrap(ruby, work, thread.index()) {
                        gc_monitor::work_begins(thread.thread());
                        return Ok(Next::Work(work));
                    }
                    thread.skip();
                }
                Take::Leave => return Ok(Next::Leave),
                Take::Wait => return Ok(Next::Wait),
                Take::Yield => {
                    let_others_run();
                    check_interrupts()?;
                }
            }
        }
    }

    /// Waits, without the GVL, until there may be work.
    #[inline(never)]
    fn wait(&self) -> Result<(), Error> {
        let thread = self.thread.get()?.borrow();
        let Some(thread) = thread.as_ref() else { return Ok(()) };
        let unparker = thread.unparker();
        without_gvl(|| thread.wait(), &|| unparker.unpark());
        check_interrupts()
    }

    /// Leaves the pool now; the thread is ending.
    fn leave(&self) -> Result<(), Error> {
        traces::work_ends();
        gc_monitor::work_ends();
        drop(self.thread.get()?.take());
        self.tracked.as_ref().inspect(|tracked| tracked.leaves());
        Ok(())
    }

    fn index(&self) -> Result<Option<usize>, Error> {
        Ok(self.thread.get()?.borrow().as_ref().map(PoolThread::index))
    }
}

/// Defines the classes.
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
    class.define_method("shut", method!(RbPool::shut, 0))?;
    class.define_method("stats", method!(RbPool::stats, 0))?;
    class.define_method("running", method!(RbPool::running, 0))?;
    let thread = native.define_class("PoolThread", ruby.class_object())?;
    thread.undef_default_alloc_func();
    thread.define_method("take", method!(RbPoolThread::take, 0))?;
    thread.define_method("each_work", method!(RbPoolThread::each_work, 0))?;
    thread.define_method("leave", method!(RbPoolThread::leave, 0))?;
    thread.define_method("index", method!(RbPoolThread::index, 0))?;
    Ok(())
}
