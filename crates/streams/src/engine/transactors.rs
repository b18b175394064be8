//! The producer of transactions of a route, made when it is first used.

use std::sync::atomic::Ordering;

use parking_lot::{Mutex, MutexGuard};

use super::group::Group;
use crate::log::{self, Commit, ErrorKind, TransactionalProducer};
use crate::record::OwnedRecord;
use chaton_core::random::Random;

/// One at a time.
#[derive(Default)]
pub(super) struct Transactors(Mutex<Option<Box<dyn TransactionalProducer>>>);

/// The one that has it.
pub(super) struct Taken<'a>(MutexGuard<'a, Option<Box<dyn TransactionalProducer>>>);

impl Transactors {
    /// Waits for it.
    pub fn take(&self) -> Taken<'_> {
        Taken(self.0.lock())
    }

    /// `None` while another has it.
    pub fn try_take(&self) -> Option<Taken<'_>> {
        self.0.try_lock().map(Taken)
    }
}

impl Taken<'_> {
    /// One whole transaction.
    pub fn transact(
        &mut self,
        group: &Group,
        topic: &str,
        records: &[OwnedRecord],
        commits: &[Commit],
    ) -> log::Result<()> {
        let transactor = match &mut *self.0 {
            Some(transactor) => transactor,
            none => none.insert(group.shared.tools.log.transactional_producer(&id(group, topic))?),
        };
        let name = &group.settings.name;
        let result = transactor.transact(records, name, &group.identity(), commits);
        if result.as_ref().is_err_and(|error| error.kind == ErrorKind::Fenced) {
            group.doubt_identity();
        }
        if result.as_ref().is_err_and(|error| error.kind != ErrorKind::Invalid) {
            // Whatever state it is in: the next one begins anew.
            *self.0 = None;
        }
        result
    }
}

/// A name that nobody else has.
fn id(group: &Group, topic: &str) -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let serial = group.shared.generations.fetch_add(1, Ordering::Relaxed);
    let random = Random::new().draw() ^ serial;
    let name = &group.settings.name;
    format!("{name}-{topic}-{}-{}-{random:016x}", host.trim(), std::process::id())
}
