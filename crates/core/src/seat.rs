//! A Ruby thread's place at the hub.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::Arc;

use crossbeam_utils::sync::{Parker, Unparker};
use parking_lot::Mutex;

use crate::clock::{self, ThreadProbe};
use crate::executor::{Current, Executor};
use crate::hub::{Hub, State};
use crate::work::{Shed, Work};

/// After this long without giving others a turn, in ns, a thread that keeps
/// finding work lets those in that wait for the GVL in the middle of a unit.
const TURN_NS: u64 = 2_000_000;
/// A thread that did not use the CPU for this much of its turn, in ns, blocked
/// in it: others had theirs, and one more change of the GVL would only cost.
const BLOCKED_NS: u64 = 500_000;

/// When a turn began, by the monotonic clock and by the thread's CPU clock.
#[derive(Clone, Copy)]
struct Turn {
    wall_ns: u64,
    /// Read when the turn has lasted a while: most end before.
    cpu_ns: Option<u64>,
}

/// What [`Seat::take`] answers.
pub enum Take<W> {
    /// A unit to run.
    Work(W),
    /// Nothing to do: call [`Seat::wait`] without the GVL, then take again.
    Wait,
    /// Other threads are in the middle of a unit and had no turn for a while:
    /// let the VM switch threads, then take again.
    Yield,
    /// The thread is not needed any more and shall end.
    Leave,
}

/// The place of one thread. Not shared: only its thread takes and waits.
/// Dropping it, also when user code killed the thread, frees the place.
pub struct Seat<W: Work> {
    hub: Arc<Hub<W>>,
    executor: Arc<Executor<W::Label>>,
    parker: Parker,
    /// Counted in `State::coming` until its first take after a wake.
    coming: Cell<bool>,
    /// This turn: it begins at the first take with the GVL after a wait or a
    /// yield. The time spent waiting for the GVL is not ours.
    turn: Cell<Option<Turn>>,
    left: Cell<bool>,
}

impl<W: Work> Seat<W> {
    pub(crate) fn enter(hub: &Arc<Hub<W>>) -> Self {
        let parker = Parker::new();
        let mut state = hub.state.lock();
        let index = state.executors.iter().position(Option::is_none).unwrap_or_else(|| {
            state.executors.push(None);
            state.executors.len() - 1
        });
        let executor = Arc::new(Executor {
            index,
            probe: ThreadProbe::current(),
            unparker: parker.unparker().clone(),
            current: Mutex::new(None),
            parked: AtomicBool::new(false),
            cpu_seen_ns: AtomicU64::new(0),
        });
        state.executors[index] = Some(executor.clone());
        state.awake += 1;
        state.coming += 1;
        state.spawning = state.spawning.saturating_sub(1);
        hub.slot().threads.store(state.alive() as u32, Relaxed);
        drop(state);
        Self {
            hub: hub.clone(),
            executor,
            parker,
            coming: Cell::new(true),
            turn: Cell::new(None),
            left: Cell::new(false),
        }
    }

    /// Index of the executor, as in [`crate::executor::Running::executor`].
    pub fn index(&self) -> usize {
        self.executor.index
    }

    /// The thread as others see it.
    pub fn executor(&self) -> &Arc<Executor<W::Label>> {
        &self.executor
    }

    /// Ends a [`Seat::wait`] from another thread.
    pub fn unparker(&self) -> Unparker {
        self.executor.unparker.clone()
    }

    /// Finishes the unit taken before, if any, and takes the next. Never blocks.
    pub fn take(&self) -> Take<W> {
        let done = self.executor.current.lock().take();
        let now = clock::now_ns();
        let mut old = Vec::new();
        let mut state = self.hub.state.lock();
        if done.is_some() {
            state.finished += 1;
            state.running -= 1;
            state.last_end_ns = now;
        }
        self.arrive(&mut state);
        let taken = self.next(&mut state, now, &mut old);
        let roused = match &taken {
            Take::Work(_) if !state.lanes.is_empty() && state.awake < state.width => state.rouse(),
            _ => None,
        };
        // Units are left and nobody comes for them: somebody must look.
        let look = !state.lanes.is_empty() && roused.is_none();
        self.hub.publish(&state);
        drop(state);
        if look {
            self.hub.arm();
        }
        if let Take::Work(work) = &taken {
            *self.executor.current.lock() = Some(Current { label: work.label(), since_ns: now });
        }
        if let Some(executor) = roused {
            executor.unparker.unpark();
        }
        drop(done);
        self.hub.shed(old, Shed::Old);
        taken
    }

    /// Blocks until there may be something to take. The caller has released
    /// the GVL. Returns early after [`Seat::unparker`] was used.
    pub fn wait(&self) {
        self.parker.park();
        self.turn.set(None);
    }

    /// Counts a thread that was woken, or started, as arrived.
    fn arrive(&self, state: &mut State<W>) {
        let index = self.executor.index;
        self.executor.parked.store(false, Relaxed);
        if let Some(at) = state.idle.iter().position(|i| *i == index) {
            // Nobody woke it: it comes back from an interrupt.
            state.idle.remove(at);
            state.idle_low = state.idle_low.min(state.idle.len());
            state.awake += 1;
            self.coming.set(false);
        } else if self.coming.replace(false) {
            state.coming = state.coming.saturating_sub(1);
        }
    }

    fn next(&self, state: &mut State<W>, now: u64, old: &mut Vec<W>) -> Take<W> {
        let others_at_work = state.running > 0 && !state.lanes.is_empty();
        if self.turn_is_over(now) && others_at_work {
            self.turn.set(None);
            return Take::Yield;
        }
        let over_width = state.awake > state.width && state.awake > 1;
        if !over_width || state.closing {
            if let Some(work) = state.lanes.pop(now, old) {
                state.taken += 1;
                state.running += 1;
                state.last_take_ns = now;
                self.hub.slot().taken_at_ms.store(now / 1_000_000, Relaxed);
                return Take::Work(work);
            }
        }
        if state.closing || state.leaving > 0 {
            state.leaving = state.leaving.saturating_sub(1);
            self.give_up(state);
            return Take::Leave;
        }
        state.idle.push(self.executor.index);
        self.executor.parked.store(true, Relaxed);
        state.awake -= 1;
        self.coming.set(true);
        Take::Wait
    }

    /// Whether this thread has used the CPU for a whole turn without a break.
    fn turn_is_over(&self, now: u64) -> bool {
        let turn = self.turn.get().unwrap_or(Turn { wall_ns: now, cpu_ns: None });
        self.turn.set(Some(turn));
        let wall_ns = now.saturating_sub(turn.wall_ns);
        if wall_ns < TURN_NS {
            return false;
        }
        let cpu = self.executor.probe.cpu_ns().unwrap_or(0);
        let over =
            turn.cpu_ns.is_some_and(|began| wall_ns < cpu.saturating_sub(began) + BLOCKED_NS);
        if !over {
            self.turn.set(Some(Turn { wall_ns: now, cpu_ns: Some(cpu) }));
        }
        over
    }

    fn give_up(&self, state: &mut State<W>) {
        self.left.set(true);
        if let Some(at) = state.idle.iter().position(|i| *i == self.executor.index) {
            state.idle.remove(at);
            state.idle_low = state.idle_low.min(state.idle.len());
        } else {
            state.awake -= 1;
            if self.coming.replace(false) {
                state.coming = state.coming.saturating_sub(1);
            }
        }
        state.executors[self.executor.index] = None;
        self.hub.slot().threads.store(state.alive() as u32, Relaxed);
    }
}

impl<W: Work> Drop for Seat<W> {
    fn drop(&mut self) {
        let unfinished = self.executor.current.lock().take();
        if self.left.get() {
            return;
        }
        let mut state = self.hub.state.lock();
        if unfinished.is_some() {
            state.running -= 1;
        }
        self.give_up(&mut state);
        // A wake that this thread took with it goes to another one.
        let wanted = !state.lanes.is_empty() && state.awake < state.width;
        let roused = if wanted { state.rouse() } else { None };
        let replace = !state.closing
            && roused.is_none()
            && (state.alive() < self.hub.options.threads_min || !state.lanes.is_empty());
        self.hub.publish(&state);
        drop(state);
        if let Some(executor) = roused {
            executor.unparker.unpark();
        } else if replace {
            self.hub.replace_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::board::Board;
    use crate::guard::Event;
    use crate::hub::Options;
    use crate::lanes::LaneLimits;
    use crate::sentinel::{Hooks, Sentinel};
    use crate::work::Label;
    use std::time::Duration;

    struct Unit(u64);
    impl Label for u64 {
        fn describe(&self) -> String {
            format!("unit {self}")
        }
        fn id(&self) -> u64 {
            *self
        }
    }
    impl Work for Unit {
        type Label = u64;
        fn bytes(&self) -> usize {
            1
        }
        fn label(&self) -> u64 {
            self.0
        }
        fn shed(self, _: Shed) {}
    }

    fn hub(threads_max: usize) -> Arc<Hub<Unit>> {
        Hub::new(Options {
            threads_min: 1,
            threads_max,
            lanes: vec![LaneLimits { count_max: 100, bytes_max: 100, age_max_ms: 0 }],
            stall_ns: 200_000,
            preempt_ns: 5_000_000,
            thread_idle_ns: 1_000_000_000,
            board: Arc::new(Board::new(1).unwrap()),
            slot: 0,
        })
        .unwrap()
    }

    fn watch(hub: &Arc<Hub<Unit>>) -> Sentinel {
        let report = Box::new(|_: &str| {});
        let hooks =
            Hooks { preempt: None, report, leash: None, orphan_exit: Duration::from_secs(1) };
        Sentinel::start(hub, hooks).unwrap()
    }

    #[test]
    fn a_batch_that_woke_one_thread_is_looked_after_when_that_one_blocks() {
        let hub = hub(4);
        let sentinel = watch(&hub);
        let seat = hub.enter();
        assert!(matches!(seat.take(), Take::Wait));
        for id in 0..3 {
            assert!(hub.enqueue(0, Unit(id)).is_ok());
        }
        hub.nudge();
        seat.wait();
        assert!(matches!(seat.take(), Take::Work(Unit(0))));
        // This thread blocks, as in user code; the sentinel asks for another.
        assert!(hub.guard().wait());
        assert!(matches!(hub.guard().poll(), Some(Event::Spawn(_))));
        drop(sentinel);
    }

    /// Takes units with `between` before each while another thread is in the
    /// middle of one; answers whether a yield came among so many.
    fn yields_among(takes: usize, between: impl Fn(&Seat<Unit>)) -> bool {
        let hub = hub(2);
        let (other, seat) = (hub.enter(), hub.enter());
        hub.apply(&crate::policy::Decision { width: 2, ..Default::default() });
        (0..2).for_each(|id| hub.enqueue(0, Unit(id)).ok().unwrap());
        assert!(matches!(other.take(), Take::Work(_)));
        (0..takes).any(|_| {
            hub.enqueue(0, Unit(9)).ok().unwrap();
            let take = seat.take();
            between(&seat);
            matches!(take, Take::Yield)
        })
    }

    #[test]
    fn a_thread_that_computes_lets_others_in() {
        let compute = |seat: &Seat<Unit>| {
            let until = seat.executor.probe.cpu_ns().unwrap() + TURN_NS;
            while seat.executor.probe.cpu_ns().unwrap() < until {
                std::hint::black_box(0);
            }
        };
        assert!(yields_among(50, compute));
    }

    #[test]
    fn a_thread_that_blocks_by_itself_keeps_its_turn() {
        let block = |_: &Seat<Unit>| std::thread::sleep(Duration::from_nanos(2 * TURN_NS));
        assert!(!yields_among(20, block));
    }

    #[test]
    fn a_seat_given_up_while_parked_or_woken_leaves_no_trace() {
        let hub = hub(4);
        let (first, second) = (hub.enter(), hub.enter());
        assert!(matches!(first.take(), Take::Wait));
        assert!(matches!(second.take(), Take::Wait));
        drop(first);
        hub.enqueue(0, Unit(1)).ok().unwrap();
        hub.nudge();
        drop(second);
        assert_eq!(hub.stats().threads, 0);
        assert_eq!(hub.guard().poll(), Some(Event::Spawn(1)), "down to the minimum");
        let third = hub.enter();
        assert!(matches!(third.take(), Take::Work(Unit(1))));
    }

    #[test]
    fn shrinking_survives_threads_killed_while_parked() {
        let hub = hub(8);
        let mut seats: Vec<_> = (0..6).map(|_| hub.enter()).collect();
        assert!(seats.iter().all(|seat| matches!(seat.take(), Take::Wait)));
        hub.shrink();
        seats.truncate(2);
        hub.shrink();
        hub.shrink();
        assert!(hub.stats().threads <= 2);
    }

    #[test]
    fn a_closed_hub_lets_its_threads_leave_when_it_is_empty() {
        let hub = hub(2);
        let seat = hub.enter();
        hub.enqueue(0, Unit(1)).ok().unwrap();
        hub.close();
        assert!(hub.enqueue(0, Unit(2)).is_err());
        assert!(matches!(seat.take(), Take::Work(Unit(1))));
        assert!(matches!(seat.take(), Take::Leave));
    }
}
