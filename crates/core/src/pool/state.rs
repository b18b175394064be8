//! The pool's state: the queue, and which threads are parked, waking or at work. It has
//! no clock and no lock of its own, so the simulation drives it as the pool does.

use std::sync::Arc;

use crate::pool::policy::Decision;
use crate::pool::quantum::CpuTimes;
use crate::pool::queue::WorkQueue;
use crate::pool::thread_record::ThreadRecord;
use crate::work::{Priority, Role, Work};

/// A job or batch runs for this part of the least quantum while a request waits.
const BACKGROUND_PART: u64 = 4;

/// The result of [`crate::pool::thread::PoolThread::take`].
pub enum Take {
    /// Work to run.
    Work(Arc<dyn Work>),
    /// Nothing to do: call [`crate::pool::thread::PoolThread::wait`] without the GVL, then
    /// take again.
    Wait,
    /// Other threads have waited for the GVL for a while: let them run, then take again.
    Yield,
    /// The thread is no longer needed and ends.
    Leave,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Parked,
    /// Woken or started; it has not taken work yet.
    Waking,
    AtWork,
}

/// A thread of the pool.
pub(crate) struct Member {
    pub record: Arc<ThreadRecord>,
    place: Place,
    /// It ends when it finds no work.
    leaving: bool,
}

impl Member {
    pub fn is_parked(&self) -> bool {
        self.place == Place::Parked
    }
}

#[derive(Default)]
pub(crate) struct PoolState {
    pub queue: WorkQueue,
    pub threads: Vec<Option<Member>>,
    /// Parked threads. The one that parked last is at the end and is woken
    /// first: its caches are warm.
    pub idle: Vec<usize>,
    /// Smallest number of parked threads since the last shrink.
    pub idle_low: usize,
    /// Threads that are not parked.
    pub awake: usize,
    /// Those of them that were woken or started and have not taken work yet.
    pub waking: usize,
    /// Threads that were requested and have not started.
    pub spawning: usize,
    /// Threads that may be awake.
    pub width: usize,
    pub taken: u64,
    pub finished: u64,
    pub running: usize,
    /// Jobs and batches among the running work.
    pub running_background: usize,
    pub last_take_ns: u64,
    pub last_finish_ns: u64,
    /// When a thread was last woken or requested.
    pub last_wake_ns: u64,
    pub closing: bool,
    pub wakes: u64,
    /// CPU times of recent work.
    pub cpu_times: CpuTimes,
}

impl PoolState {
    pub fn new(queue: WorkQueue, cpu_times: CpuTimes, now_ns: u64) -> Self {
        Self { queue, cpu_times, width: 1, last_take_ns: now_ns, ..Self::default() }
    }

    pub fn alive(&self) -> usize {
        self.idle.len() + self.awake
    }

    pub fn records(&self) -> impl Iterator<Item = &Arc<ThreadRecord>> {
        self.threads.iter().flatten().map(|member| &member.record)
    }

    /// Adds a thread that has just started; `record` makes its record from its index.
    pub fn enter(&mut self, record: impl FnOnce(usize) -> Arc<ThreadRecord>) -> Arc<ThreadRecord> {
        let index = self.threads.iter().position(Option::is_none).unwrap_or_else(|| {
            self.threads.push(None);
            self.threads.len() - 1
        });
        let record = record(index);
        let member = Member { record: record.clone(), place: Place::Waking, leaving: false };
        self.threads[index] = Some(member);
        self.count_in(index, Place::Waking);
        self.spawning = self.spawning.saturating_sub(1);
        record
    }

    /// Whether the thread has not left.
    pub fn has(&self, record: &Arc<ThreadRecord>) -> bool {
        let member = self.threads.get(record.index).and_then(Option::as_ref);
        member.is_some_and(|member| Arc::ptr_eq(&member.record, record))
    }

    /// Removes a thread.
    pub fn leave(&mut self, index: usize) {
        if let Some(member) = self.threads[index].take() {
            self.count_out(index, member.place);
        }
    }

    /// Wakes the thread that parked last.
    pub fn wake_one(&mut self, now_ns: u64) -> Option<Arc<ThreadRecord>> {
        let index = *self.idle.last()?;
        self.put(index, Place::Waking);
        self.wakes += 1;
        self.last_wake_ns = now_ns;
        self.threads[index].as_ref().map(|member| member.record.clone())
    }

    /// Wakes a thread if work waits and the width allows one more.
    pub fn wake_for_work(&mut self, now_ns: impl FnOnce() -> u64) -> Option<Arc<ThreadRecord>> {
        let wanted = !self.queue.is_empty() && self.awake < self.width;
        wanted.then(|| self.wake_one(now_ns())).flatten()
    }

    /// Gives the thread something to do, or parks it.
    pub fn take(&mut self, index: usize, now_ns: u64, expired: &mut Vec<Arc<dyn Work>>) -> Take {
        self.put(index, Place::AtWork);
        let over_width = self.awake > self.width && self.awake > 1;
        if !over_width || self.closing {
            if let Some(work) = self.queue.pop(now_ns, expired) {
                self.taken += 1;
                self.count_running(work.role(), 1);
                self.last_take_ns = now_ns;
                return Take::Work(work);
            }
        }
        let leaving = self.threads[index].as_ref().is_some_and(|member| member.leaving);
        if self.closing || leaving {
            self.leave(index);
            return Take::Leave;
        }
        self.put(index, Place::Parked);
        Take::Wait
    }

    /// Counts work as finished.
    pub fn finish(&mut self, role: Role, now_ns: u64) {
        self.finished += 1;
        self.last_finish_ns = now_ns;
        self.count_running(role, -1);
    }

    /// Counts work whose thread ended as no longer running.
    pub fn abandon(&mut self, role: Role) {
        self.count_running(role, -1);
    }

    /// Changes the width, counts the threads to start, and wakes the others.
    pub fn apply(&mut self, decision: &Decision, now_ns: u64) -> Vec<Arc<ThreadRecord>> {
        self.width = decision.width.max(1);
        self.spawning += decision.spawn;
        if decision.spawn > 0 {
            self.last_wake_ns = now_ns;
        }
        (0..decision.wake).map_while(|_| self.wake_one(now_ns)).collect()
    }

    /// Wakes the threads that were parked since the last call, down to `min`, so that they
    /// end; the second value is whether any above the minimum are left.
    pub fn shrink(&mut self, min: usize) -> (Vec<Arc<ThreadRecord>>, bool) {
        // Threads that are already leaving do not count.
        let leaving = self.threads.iter().flatten().filter(|member| member.leaving).count();
        let spare = self.alive().saturating_sub(leaving).saturating_sub(min);
        let unused = self.idle_low.min(spare).min(self.idle.len());
        // The thread parked longest leaves first: its caches are the coldest.
        let leavers: Vec<_> = self.idle[..unused].to_vec();
        let leavers = leavers.into_iter().filter_map(|index| {
            self.put(index, Place::Waking);
            let member = self.threads[index].as_mut()?;
            member.leaving = true;
            Some(member.record.clone())
        });
        let leavers = leavers.collect();
        self.idle_low = self.idle.len();
        (leavers, spare > unused)
    }

    /// The quantum of running work (`None`: of a thread outside the pool); that of requests
    /// if it is shorter and one waits.
    pub fn quantum_ns(&self, running: Option<Role>) -> u64 {
        let own_ns = self.cpu_times.quantum_ns(running);
        if self.queue.interactive_len() == 0 {
            return own_ns;
        }
        own_ns.min(self.cpu_times.quantum_ns(Some(Role::Web)))
    }

    /// The same where the time of each turn is known: jobs and batches that have had their
    /// share run for a part of it before a request, because several may take turns.
    pub fn exact_quantum_ns(&self, running: Option<Role>) -> u64 {
        let background = |role| self.queue.priority(role) == Priority::Background;
        if self.requests_go_first() && running.is_some_and(background) {
            return self.cpu_times.least_ns() / BACKGROUND_PART;
        }
        self.quantum_ns(running)
    }

    /// Whether a request is next, and jobs and batches have had their share.
    pub fn requests_go_first(&self) -> bool {
        self.queue.interactive_len() > 0 && !self.queue.background_is_due()
    }

    /// Charges time with the GVL to the class of work that ran. Counts only while both
    /// classes compete.
    pub fn charge(&mut self, ran: Priority, ns: u64) {
        let requests = ran == Priority::Interactive || self.queue.interactive_len() > 0;
        let background = self.running_background > 0 || self.queue.background_len() > 0;
        if requests && background {
            self.queue.charge(ran, ns);
        }
    }

    fn count_running(&mut self, role: Role, by: isize) {
        self.running = self.running.saturating_add_signed(by);
        if self.queue.priority(role) == Priority::Background {
            self.running_background = self.running_background.saturating_add_signed(by);
        }
    }

    fn put(&mut self, index: usize, place: Place) {
        let Some(member) = &mut self.threads[index] else { return };
        let before = std::mem::replace(&mut member.place, place);
        if before != place {
            self.count_out(index, before);
            self.count_in(index, place);
        }
    }

    fn count_in(&mut self, index: usize, place: Place) {
        match place {
            Place::Parked => self.idle.push(index),
            Place::Waking => (self.awake, self.waking) = (self.awake + 1, self.waking + 1),
            Place::AtWork => self.awake += 1,
        }
    }

    fn count_out(&mut self, index: usize, place: Place) {
        match place {
            Place::Parked => {
                if self.idle.last() == Some(&index) {
                    self.idle.pop();
                } else {
                    self.idle.retain(|parked| *parked != index);
                }
                self.idle_low = self.idle_low.min(self.idle.len());
            }
            Place::Waking => (self.awake, self.waking) = (self.awake - 1, self.waking - 1),
            Place::AtWork => self.awake -= 1,
        }
    }
}
