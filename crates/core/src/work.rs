//! A unit of work: what an engine hands to a Ruby thread.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use crate::sync::atomic::{AtomicU8, Ordering};

/// Which engine a unit of work belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// HTTP requests.
    Web,
    /// Background jobs.
    Jobs,
    /// Batches of records.
    Streams,
}

impl Role {
    /// Every role, in the order of their numbers.
    pub const ALL: [Self; 3] = [Self::Web, Self::Jobs, Self::Streams];

    /// The role's name in settings, statistics and logs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Web => "web",
            Self::Jobs => "jobs",
            Self::Streams => "streams",
        }
    }

    /// Whether a client waits for the outcome. Other work may begin later while the CPU is
    /// busy.
    pub fn is_interactive(self) -> bool {
        self == Self::Web
    }
}

/// One request, job or batch. The queue holds it, then the thread that runs it;
/// the list of what is running keeps a second reference.
pub trait Work: Any + Send + Sync {
    /// The engine it belongs to.
    fn role(&self) -> Role;

    /// Its number, unique within its engine.
    fn id(&self) -> u64;

    /// A short description for people, such as `GET /orders`.
    fn describe(&self) -> String;

    /// Whether it is the server's own, which lists of running work leave out.
    fn is_left_out(&self) -> bool {
        false
    }

    /// What names it in each line of the log about it: a request's id, a job's class and jid.
    fn log_context(&self) -> Vec<(&'static str, String)>;

    /// Bytes it holds while it waits, for the queue's bound by bytes.
    fn bytes(&self) -> usize;

    /// The work will not be run: a request is answered 503, a job goes back to
    /// its queue, a batch is read again.
    fn release(self: Arc<Self>);

    /// The thread that ran it has ended. Work without an outcome gets one: a request is
    /// answered 500, a job goes back to its queue, a batch is read again.
    fn abandon(self: Arc<Self>);
}

/// The concrete type behind `work`; `None` when it is another one.
pub fn downcast<W: Work>(work: Arc<dyn Work>) -> Option<Arc<W>> {
    let any: Arc<dyn Any + Send + Sync> = work;
    any.downcast().ok()
}

/// One entry of the list of what is running.
#[derive(Clone, Debug, Serialize)]
pub struct Running {
    /// The engine it belongs to: `web`, `jobs` or `streams`.
    pub role: &'static str,
    /// Its number, unique within its engine.
    pub id: u64,
    /// A short description for people, such as `GET /orders`.
    pub what: String,
    /// What names it in the log, such as `request_id`.
    pub context: BTreeMap<&'static str, String>,
    /// How long it has been running, in ms.
    pub age_ms: u64,
    /// The thread's index.
    pub thread: usize,
    /// The kernel's id of the thread.
    pub tid: i32,
    /// CPU time in ms that the thread has used since it started.
    pub cpu_ms: u64,
    /// The kernel function in which it sleeps, if the kernel shows it.
    pub wait_channel: Option<String>,
}

/// How far a unit of work has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum WorkState {
    /// In the queue, not begun.
    Waiting,
    /// A thread runs it.
    Running,
    /// It has its outcome; later ones are ignored.
    Finished,
}

/// A [`WorkState`] that only moves forward and that any thread may move.
#[derive(Debug, Default)]
pub struct AtomicWorkState(AtomicU8);

impl AtomicWorkState {
    /// The state now.
    pub fn get(&self) -> WorkState {
        Self::of(self.0.load(Ordering::Acquire))
    }

    /// Waiting becomes running; returns whether it did.
    pub fn start(&self) -> bool {
        self.leave_waiting(WorkState::Running)
    }

    /// Waiting becomes finished; returns whether it did.
    pub fn finish_unstarted(&self) -> bool {
        self.leave_waiting(WorkState::Finished)
    }

    /// The work is finished from now on; returns the state before.
    pub fn finish(&self) -> WorkState {
        Self::of(self.0.swap(WorkState::Finished as u8, Ordering::AcqRel))
    }

    fn leave_waiting(&self, to: WorkState) -> bool {
        let (from, to) = (WorkState::Waiting as u8, to as u8);
        self.0.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    fn of(number: u8) -> WorkState {
        match number {
            0 => WorkState::Waiting,
            1 => WorkState::Running,
            _ => WorkState::Finished,
        }
    }
}

/// Work for this crate's own tests.
#[cfg(test)]
pub(crate) mod testing {
    use super::*;
    use std::sync::atomic::AtomicBool;

    pub struct TestWork {
        pub role: Role,
        pub id: u64,
        pub bytes: usize,
        pub abandoned: AtomicBool,
    }

    impl Work for TestWork {
        fn role(&self) -> Role {
            self.role
        }
        fn id(&self) -> u64 {
            self.id
        }
        fn describe(&self) -> String {
            format!("work {}", self.id)
        }
        fn log_context(&self) -> Vec<(&'static str, String)> {
            vec![("work_id", self.id.to_string())]
        }
        fn bytes(&self) -> usize {
            self.bytes
        }
        fn release(self: Arc<Self>) {}
        fn abandon(self: Arc<Self>) {
            self.abandoned.store(true, Ordering::Release);
        }
    }

    /// A request of one byte.
    pub fn request(id: u64) -> Arc<TestWork> {
        work(Role::Web, id, 1)
    }

    /// Work of this engine and size.
    pub fn work(role: Role, id: u64, bytes: usize) -> Arc<TestWork> {
        Arc::new(TestWork { role, id, bytes, abandoned: AtomicBool::new(false) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_of_work_starts_once_and_finishes_once() {
        let state = AtomicWorkState::default();
        assert_eq!(state.get(), WorkState::Waiting);
        assert!(state.start() && !state.start());
        assert!(!state.finish_unstarted());
        assert_eq!(state.finish(), WorkState::Running);
        assert_eq!(state.finish(), WorkState::Finished);
        assert!(!state.start());
    }

    #[test]
    fn work_that_never_started_can_be_finished() {
        let state = AtomicWorkState::default();
        assert!(state.finish_unstarted() && !state.start());
        assert_eq!(state.get(), WorkState::Finished);
    }
}
