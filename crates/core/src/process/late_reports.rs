//! Late reports that Ruby could not write: work past its time is logged by the support
//! thread, with a backtrace. When it does not get the GVL, Rust logs what it knows.

use crate::log::{self, FieldValue};
use crate::process::events::SupportEvents;
use crate::work::Running;

/// Time after which Rust writes a report that the support thread has not fetched (ns).
const UNFETCHED_NS: u64 = 1_000_000_000;

/// When the first report is to be written (ns of the clock).
pub fn due_ns(events: &SupportEvents) -> Option<u64> {
    events.next_unfetched_ns(UNFETCHED_NS)
}

/// Logs the reports that are due. `running` lists the work that runs now.
pub fn log_unfetched(events: &SupportEvents, running: impl Fn() -> Vec<Running>) {
    for (role, id) in events.take_unfetched(UNFETCHED_NS) {
        let found = |running: &Running| running.id == id && running.role == role.name();
        match running().into_iter().find(found) {
            Some(r) => log_running(&r),
            None => {
                log::warn(&format!("late: request {id} ended before it could be reported"));
            }
        }
    }
}

fn log_running(r: &Running) {
    let context: Vec<_> =
        r.context.iter().map(|(name, value)| (*name, FieldValue::Text(value))).collect();
    let line = format!(
        "late: {} has been running for {} ms in thread {} (tid {}); no backtrace, because the GVL \
         was not free within 1 s; CPU {} ms, sleeps in {}",
        r.what,
        r.age_ms,
        r.thread,
        r.tid,
        r.cpu_ms,
        r.wait_channel.as_deref().unwrap_or("nothing (it runs)"),
    );
    log::warn_with(&line, &context);
}
