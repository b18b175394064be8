//! A consumer group as its partitions see it. Its thread is the poller.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;

use chaton_core::event_fd::EventFd;
use fastrand::Rng;
use parking_lot::Mutex;

use super::context::EngineContext;
use super::route::Route;
use super::stats::GroupStats;
use crate::log::{self, Commit, ErrorKind, LogError, TransactionalProducer, Writes};
use crate::settings::GroupSettings;
use chaton_core::backoff::Backoff;

/// A consumer group.
pub(super) struct ConsumerGroup {
    pub settings: GroupSettings,
    pub routes: Vec<Arc<Route>>,
    /// Their places by topic.
    route_of: HashMap<String, usize>,
    pub context: Arc<EngineContext>,
    pub event_fd: Arc<EventFd>,
    /// Its thread waits, or is about to.
    asleep: AtomicBool,
    /// When the thread wakes by itself; the largest number while it is about to wait.
    sleep_until_ns: AtomicU64,
    /// When the next commit may be sent.
    commit_at_ns: AtomicU64,
    committing: AtomicBool,
    identity: Mutex<Vec<u8>>,
    /// The log has refused the identity as outdated.
    identity_doubted: AtomicBool,
    /// Why it is to be joined anew.
    rejoin: Mutex<Option<LogError>>,
    connected: AtomicBool,
    /// It is connected and the log does not complain, as last published.
    works: AtomicBool,
    trouble: Mutex<Option<String>>,
    dead_letter_backoff: Mutex<Backoff>,
}

impl ConsumerGroup {
    pub fn new(
        settings: GroupSettings,
        routes: Vec<Arc<Route>>,
        context: &Arc<EngineContext>,
        event_fd: EventFd,
    ) -> Self {
        let topics = routes.iter().map(|route| route.settings.topic.clone());
        Self {
            settings,
            route_of: topics.zip(0..).collect(),
            routes,
            context: context.clone(),
            event_fd: Arc::new(event_fd),
            dead_letter_backoff: Mutex::new(context.backoff()),
            asleep: AtomicBool::new(false),
            sleep_until_ns: AtomicU64::new(u64::MAX),
            commit_at_ns: AtomicU64::new(0),
            committing: AtomicBool::new(false),
            identity: Mutex::default(),
            identity_doubted: AtomicBool::new(false),
            rejoin: Mutex::default(),
            connected: AtomicBool::new(false),
            works: AtomicBool::new(false),
            trouble: Mutex::default(),
        }
    }

    /// How long batches of a revoked partition may run: half of the time after which the log takes
    /// a silent member for dead.
    pub fn drain_time(&self) -> Duration {
        self.settings.max_poll_interval / 2
    }

    pub fn route(&self, topic: &str) -> Option<&Arc<Route>> {
        self.routes.get(*self.route_of.get(topic)?)
    }

    /// The place of one of its routes, which are numbered in their order.
    pub fn place_of(&self, route: &Route) -> usize {
        route.number - self.routes.first().map_or(0, |first| first.number)
    }

    /// Wakes the group's thread if it waits.
    pub fn notify(&self) {
        if self.asleep.swap(false, Ordering::SeqCst) {
            self.event_fd.notify();
        }
    }

    /// Wakes the group's thread if it waits and would wake later than this.
    pub fn notify_by(&self, at_ns: u64) {
        if self.is_asleep_after(at_ns) {
            self.notify();
        }
    }

    /// Whether its thread waits, and would wake later than this.
    pub fn is_asleep_after(&self, at_ns: u64) -> bool {
        self.asleep.load(Ordering::SeqCst) && at_ns < self.sleep_until_ns.load(Ordering::SeqCst)
    }

    /// The thread looks for work a last time before it waits. It is notified from here on.
    pub fn prepare_sleep(&self) {
        self.sleep_until_ns.store(u64::MAX, Ordering::SeqCst);
        self.asleep.store(true, Ordering::SeqCst);
    }

    /// Whether the thread was notified since [`ConsumerGroup::prepare_sleep`].
    pub fn was_notified(&self) -> bool {
        !self.asleep.load(Ordering::SeqCst)
    }

    pub fn sleep_until(&self, at_ns: u64) {
        self.sleep_until_ns.store(at_ns, Ordering::SeqCst);
    }

    pub fn woke(&self) {
        self.asleep.store(false, Ordering::SeqCst);
    }

    /// When the next commit may be sent.
    pub fn commit_at_ns(&self) -> u64 {
        self.commit_at_ns.load(Ordering::Relaxed)
    }

    pub fn commit_not_before(&self, at_ns: u64) {
        self.commit_at_ns.store(at_ns, Ordering::Relaxed);
    }

    /// A dead letter was written, or failed; with `shrinks` a smaller one is tried at once.
    pub fn dead_letter_ended(&self, topic: &str, failure: Option<&LogError>, shrinks: bool) {
        let mut backoff = self.dead_letter_backoff.lock();
        let Some(why) = failure else {
            backoff.succeeded();
            return;
        };
        let (_, is_new) = backoff.failed(&why.message);
        drop(backoff);
        if is_new {
            let name = &self.settings.name;
            let what = format!("group {name}: writing a dead letter to {topic}");
            let then = match shrinks {
                true => "it is written with less of its record",
                false => "its partition waits, trying again",
            };
            self.context.warn(&format!("{what}: {}; {then}", why.message));
        }
    }

    pub fn is_committing(&self) -> bool {
        self.committing.load(Ordering::SeqCst)
    }

    pub fn set_committing(&self, yes: bool) {
        self.committing.store(yes, Ordering::SeqCst);
        if !yes {
            self.context.idle_wait.changed();
        }
    }

    pub fn identity(&self) -> Vec<u8> {
        self.identity.lock().clone()
    }

    pub fn set_identity(&self, identity: Vec<u8>) {
        *self.identity.lock() = identity;
    }

    /// Whether the identity was doubted since the last call. A generation may pass without an event
    /// for this member, so that its thread has to ask.
    pub fn take_identity_doubt(&self) -> bool {
        self.identity_doubted.swap(false, Ordering::SeqCst)
    }

    /// Runs one transaction, with the producer in `slot`, which is made when it is needed. It keeps its
    /// name after an error, so that the log ends a transaction that is still open.
    pub fn transact(
        &self,
        slot: &mut Option<Box<dyn TransactionalProducer>>,
        topic: &str,
        writes: Writes<'_>,
        identity: &[u8],
        commits: &[Commit],
        wanted: &dyn Fn() -> bool,
    ) -> log::Result<()> {
        let transactor = match slot {
            Some(transactor) => transactor,
            None => {
                slot.insert(self.context.log.transactional_producer(&self.transactional_id(topic))?)
            }
        };
        let (records, name) = (writes.records, &self.settings.name);
        let result = match writes.also {
            Some(also) => transactor.transact_with(also, records, name, identity, commits),
            None => transactor.transact(records, name, identity, commits, wanted),
        };
        if result.as_ref().is_err_and(|error| error.kind == ErrorKind::Fenced) {
            self.identity_doubted.store(true, Ordering::SeqCst);
            self.notify();
        }
        result
    }

    /// The group is to be joined anew, because of this error.
    pub fn rejoin(&self, error: LogError) {
        *self.rejoin.lock() = Some(error);
        self.notify();
    }

    pub fn take_rejoin(&self) -> Option<LogError> {
        self.rejoin.lock().take()
    }

    /// A name that no other producer has.
    fn transactional_id(&self, topic: &str) -> String {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let serial = self.context.generations.fetch_add(1, Ordering::Relaxed);
        let random = Rng::new().u64(..) ^ serial;
        let name = &self.settings.name;
        format!("{name}-{topic}-{}-{}-{random:016x}", host.trim(), std::process::id())
    }

    /// What the log complains about; `None` when it works.
    pub fn set_trouble(&self, trouble: Option<String>) {
        *self.trouble.lock() = trouble;
        self.publish();
    }

    pub fn set_connected(&self, yes: bool) {
        self.connected.store(yes, Ordering::Relaxed);
        self.publish();
    }

    /// Counts this group among those that are joined. Only its thread calls it.
    fn publish(&self) {
        let works = self.connected.load(Ordering::Relaxed) && self.trouble.lock().is_none();
        if self.works.swap(works, Ordering::Relaxed) == works {
            return;
        }
        if let Some(gauges) = &self.context.settings.gauges {
            match works {
                true => gauges.groups_joined.fetch_add(1, Ordering::Relaxed),
                false => gauges.groups_joined.fetch_sub(1, Ordering::Relaxed),
            };
        }
    }

    /// Its statistics, without the partitions.
    pub fn stats(&self) -> GroupStats {
        GroupStats {
            name: self.settings.name.clone(),
            connected: self.connected.load(Ordering::Relaxed),
            trouble: self.trouble.lock().clone(),
            partitions: Vec::new(),
        }
    }
}
