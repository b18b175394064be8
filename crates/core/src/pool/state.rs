//! The pool's state: the queue, and which threads are parked, waking or at work. It has
//! no clock and no lock of its own, so the simulation drives it as the pool does.

use std::sync::Arc;

use serde::Serialize;

use crate::pool::policy::Decision;
use crate::pool::quantum::{CpuTimes, TIME_SLICE_NS};
use crate::pool::queue::WorkQueue;
use crate::pool::thread_record::ThreadRecord;
use crate::sync::atomic::Ordering::Relaxed;
use crate::work::{Role, Work};

/// A job or batch runs for this part of the least quantum while a request waits.
const BACKGROUND_PART: u64 = 4;

/// The pause after the system has refused a thread (ns); it doubles with each refusal, up to the second one. Refusals
/// come from a limit on pids or memory, which lasts.
const REFUSED_NS_MIN: u64 = 100_000_000;
const REFUSED_NS_MAX: u64 = 5_000_000_000;

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
pub(crate) enum Place {
    Parked,
    /// Woken or started; it has not taken work yet.
    Waking,
    AtWork,
}

/// A thread of the pool.
pub(crate) struct Member {
    pub record: Arc<ThreadRecord>,
    pub place: Place,
}

/// What a pool has counted since its start.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct PoolTotals {
    /// Units of work taken.
    pub taken: u64,
    /// Units of work finished, those whose thread ended included.
    pub finished: u64,
    /// Times a parked thread was woken.
    pub wakes: u64,
    /// Observations of the scheduler.
    pub observations: u64,
    /// Observations that found work waiting and no thread that could run.
    pub stalls: u64,
    /// Times the VM was asked to yield.
    pub preemptions: u64,
}

#[derive(Default)]
pub(crate) struct PoolState {
    pub queue: WorkQueue,
    pub threads: Vec<Option<Member>>,
    /// Parked threads, and since when (ns of the clock). The one that parked last is at
    /// the end and is woken first: its caches are warm.
    pub idle: Vec<(usize, u64)>,
    /// Threads that are not parked.
    pub awake: usize,
    /// Threads that were requested and have not started.
    pub spawning: usize,
    /// Threads that may be awake.
    pub width: usize,
    pub running: usize,
    /// Jobs and batches among the running work.
    pub running_background: usize,
    pub last_take_ns: u64,
    pub last_finish_ns: u64,
    /// When a thread was last woken or requested.
    pub last_wake_ns: u64,
    /// When the VM was last asked to switch.
    pub last_switch_ns: u64,
    /// Work keeps the GVL for as long as CRuby lets it.
    pub is_patient: bool,
    pub closing: bool,
    /// Times in a row that the system refused a thread, and until when none is requested.
    refusals: u32,
    pub refused_until_ns: u64,
    pub totals: PoolTotals,
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

    /// Threads that were woken or started and have not taken work yet.
    pub fn waking(&self) -> usize {
        let members = self.threads.iter().flatten();
        members.filter(|member| member.place == Place::Waking).count()
    }

    /// The threads that were woken or started and have not taken work yet.
    pub fn waking_records(&self) -> impl Iterator<Item = &Arc<ThreadRecord>> {
        let waking = self.threads.iter().flatten().filter(|member| member.place == Place::Waking);
        waking.map(|member| &member.record)
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
        self.threads[index] = Some(Member { record: record.clone(), place: Place::Waking });
        self.awake += 1;
        self.spawning = self.spawning.saturating_sub(1);
        self.refusals = 0;
        record
    }

    /// The system refused requested threads.
    pub fn refuse(&mut self, count: usize, now_ns: u64) {
        self.spawning = self.spawning.saturating_sub(count);
        let pause_ns = REFUSED_NS_MIN << self.refusals.min(6);
        self.refusals += 1;
        self.refused_until_ns = now_ns + pause_ns.min(REFUSED_NS_MAX);
    }

    /// How many threads the pool may have, of at most `max`.
    pub fn threads_max(&self, max: usize, now_ns: u64) -> usize {
        if now_ns >= self.refused_until_ns {
            return max;
        }
        max.min(self.alive() + self.spawning)
    }

    /// Whether the thread has not left.
    pub fn has(&self, record: &Arc<ThreadRecord>) -> bool {
        let member = self.threads.get(record.index).and_then(Option::as_ref);
        member.is_some_and(|member| Arc::ptr_eq(&member.record, record))
    }

    /// Removes a thread.
    pub fn leave(&mut self, index: usize) {
        match self.threads[index].take() {
            Some(Member { place: Place::Parked, .. }) => self.forget_parked(index),
            Some(_) => self.awake -= 1,
            None => {}
        }
    }

    /// Removes the threads that have been parked since `parked_ns` or before, down to
    /// `min`, and returns them: they end when they are woken. Those parked longest go
    /// first, because their caches are the coldest.
    pub fn shrink(&mut self, min: usize, parked_ns: u64) -> Vec<Arc<ThreadRecord>> {
        let spare = self.alive().saturating_sub(min);
        let unused = self.idle.iter().take_while(|(_, since_ns)| *since_ns <= parked_ns).count();
        let leavers = self.idle.drain(..unused.min(spare));
        leavers.filter_map(|(index, _)| Some(self.threads[index].take()?.record)).collect()
    }

    /// Wakes the thread that parked last.
    pub fn wake_one(&mut self, now_ns: u64) -> Option<Arc<ThreadRecord>> {
        let (index, _) = self.idle.pop()?;
        let member = self.threads[index].as_mut()?;
        member.place = Place::Waking;
        self.awake += 1;
        self.totals.wakes += 1;
        self.last_wake_ns = now_ns;
        Some(member.record.clone())
    }

    /// Wakes a thread if work waits and the width allows one more.
    pub fn wake_for_work(&mut self, now_ns: impl FnOnce() -> u64) -> Option<Arc<ThreadRecord>> {
        let wanted = !self.queue.is_empty() && self.awake < self.width;
        wanted.then(|| self.wake_one(now_ns())).flatten()
    }

    /// Gives the thread something to do, or parks it.
    pub fn take(&mut self, index: usize, now_ns: u64, expired: &mut Vec<Arc<dyn Work>>) -> Take {
        if self.put(index, Place::AtWork) == Some(Place::Parked) {
            // Its wait was interrupted.
            self.forget_parked(index);
            self.awake += 1;
        }
        self.narrow_after(index);
        if self.awake <= self.width || self.closing {
            if let Some(work) = self.queue.pop(now_ns, expired) {
                self.totals.taken += 1;
                self.count_running(work.role(), 1);
                self.last_take_ns = now_ns;
                return Take::Work(work);
            }
        }
        if self.closing {
            self.leave(index);
            return Take::Leave;
        }
        self.put(index, Place::Parked);
        self.idle.push((index, now_ns));
        self.awake -= 1;
        Take::Wait
    }

    /// Work that made place for other work gives it up when it ends. Where short and long jobs wait all the time, the
    /// width would otherwise grow with each long one and never be calm.
    fn narrow_after(&mut self, index: usize) {
        let record = self.threads.get(index).and_then(Option::as_ref).map(|member| &member.record);
        let places = record.map_or(0, |record| record.places.swap(0, Relaxed));
        self.width = self.width.saturating_sub(places).max(1);
    }

    /// Counts work that has ended.
    pub fn finish(&mut self, role: Role, now_ns: u64) {
        self.totals.finished += 1;
        self.last_finish_ns = now_ns;
        self.count_running(role, -1);
    }

    /// Changes the width, counts the threads to start, and wakes the others.
    pub fn apply(&mut self, decision: &Decision, now_ns: u64) -> Vec<Arc<ThreadRecord>> {
        self.width = decision.width;
        self.spawning += decision.spawn;
        if decision.spawn > 0 {
            self.last_wake_ns = now_ns;
        }
        if decision.switches() {
            self.last_switch_ns = now_ns;
        }
        (0..decision.wake).map_while(|_| self.wake_one(now_ns)).collect()
    }

    /// The quantum of running work (`None`: of a thread outside the pool); that of requests
    /// if it is shorter and one waits.
    pub fn quantum_ns(&self, running: Option<Role>) -> u64 {
        if self.is_patient {
            return TIME_SLICE_NS;
        }
        let own_ns = self.cpu_times.quantum_ns(running);
        if self.queue.interactive_len() == 0 {
            return own_ns;
        }
        own_ns.min(self.cpu_times.quantum_ns(Some(Role::Web)))
    }

    /// The same where the time of each turn is known: jobs and batches that have had their
    /// share run for a part of it before a request, because several may take turns.
    pub fn exact_quantum_ns(&self, running: Option<Role>) -> u64 {
        if !self.is_patient
            && self.requests_go_first()
            && running.is_some_and(|role| !role.is_interactive())
        {
            return self.cpu_times.least_ns / BACKGROUND_PART;
        }
        self.quantum_ns(running)
    }

    /// Whether a request is next, and jobs and batches have had their share.
    pub fn requests_go_first(&self) -> bool {
        self.queue.interactive_len() > 0 && !self.queue.background_is_due()
    }

    /// Charges time with the GVL to the class of work that ran. Counts only while both
    /// classes compete.
    pub fn charge(&mut self, ran: Role, ns: u64) {
        let interactive = self.queue.interactive_len();
        let requests = ran.is_interactive() || interactive > 0;
        if requests && (self.running_background > 0 || self.queue.len() > interactive) {
            self.queue.charge(ran, ns);
        }
    }

    fn count_running(&mut self, role: Role, by: isize) {
        self.running = self.running.saturating_add_signed(by);
        if !role.is_interactive() {
            self.running_background = self.running_background.saturating_add_signed(by);
        }
    }

    /// Notes where a thread is; returns where it was.
    fn put(&mut self, index: usize, place: Place) -> Option<Place> {
        let member = self.threads[index].as_mut()?;
        Some(std::mem::replace(&mut member.place, place))
    }

    fn forget_parked(&mut self, index: usize) {
        self.idle.retain(|(parked, _)| *parked != index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::Parker;

    const MS: u64 = 1_000_000;

    #[test]
    fn after_a_refusal_no_thread_is_requested_for_a_while() {
        let mut state = PoolState::new(WorkQueue::new(10), CpuTimes::new(0), 0);
        let enter = |state: &mut PoolState| {
            let unparker = Parker::new().unparker().clone();
            state.enter(|index| Arc::new(ThreadRecord::current(index, unparker)));
        };
        enter(&mut state);
        for pause_ms in [100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000] {
            state.spawning = 2;
            state.refuse(2, MS);
            assert_eq!(state.threads_max(8, pause_ms * MS), 1, "those that there are");
            assert_eq!(state.threads_max(8, (pause_ms + 1) * MS), 8);
        }
        enter(&mut state);
        state.refuse(1, MS);
        assert_eq!(state.threads_max(8, 101 * MS), 8, "it begins anew");
    }

    #[test]
    fn patient_work_has_the_slice_of_the_vm() {
        let mut state = PoolState::new(WorkQueue::new(10), CpuTimes::new(4 * MS), 0);
        for (is_patient, ms) in [(false, 4), (true, 100)] {
            state.is_patient = is_patient;
            assert_eq!(state.quantum_ns(Some(Role::Web)), ms * MS);
            assert_eq!(state.exact_quantum_ns(Some(Role::Jobs)), ms * MS);
        }
    }
}
