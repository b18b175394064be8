//! What waits in the queue: a unit of any engine.

use std::sync::Arc;

use chaton_core::work::{Label, Shed, Work};
#[cfg(feature = "jobs")]
use chaton_jobs::engine::Job;
#[cfg(feature = "streams")]
use chaton_streams::batch::{Batch, BatchOutcome};
use chaton_web::Exchange;

/// Lane of the web engine.
pub const WEB_LANE: usize = 0;
/// Lane of the jobs engine.
#[cfg(feature = "jobs")]
pub const JOBS_LANE: usize = 1;
/// Lane of the streams engine.
#[cfg(feature = "streams")]
pub const STREAMS_LANE: usize = 2;

/// One unit of work.
pub enum Unit {
    /// A request whose body is complete.
    Web(Arc<Exchange>, u32),
    /// A claimed job.
    #[cfg(feature = "jobs")]
    Jobs(Arc<Job>),
    /// Records of a partition, or a notice about it.
    #[cfg(feature = "streams")]
    Streams(Arc<Batch>),
}

/// What stays in the list of what is running.
pub enum UnitLabel {
    /// A request.
    Web(Arc<Exchange>),
    /// A job.
    #[cfg(feature = "jobs")]
    Jobs(Arc<Job>),
    /// A batch of records.
    #[cfg(feature = "streams")]
    Streams(Arc<Batch>),
}

impl Work for Unit {
    type Label = UnitLabel;

    fn bytes(&self) -> usize {
        match self {
            Self::Web(exchange, _) => {
                // A spooled body lies in a file and costs the queue nothing.
                let body = match exchange.body() {
                    chaton_web::RequestBody::Memory(bytes) => bytes.len(),
                    _ => 0,
                };
                exchange.head().bytes.len() + body
            }
            #[cfg(feature = "jobs")]
            Self::Jobs(job) => job.document().payload().len(),
            #[cfg(feature = "streams")]
            Self::Streams(batch) => batch.bytes(),
        }
    }

    fn label(&self) -> UnitLabel {
        match self {
            Self::Web(exchange, _) => UnitLabel::Web(exchange.clone()),
            #[cfg(feature = "jobs")]
            Self::Jobs(job) => UnitLabel::Jobs(job.clone()),
            #[cfg(feature = "streams")]
            Self::Streams(batch) => UnitLabel::Streams(batch.clone()),
        }
    }

    fn shed(self, _: Shed) {
        match self {
            Self::Web(exchange, retry_after_s) => exchange.shed(retry_after_s),
            // Back to the front of its queue.
            #[cfg(feature = "jobs")]
            Self::Jobs(job) => job.abandon(),
            // Its records are not committed: they are handed out again.
            #[cfg(feature = "streams")]
            Self::Streams(batch) => {
                batch.finish(BatchOutcome::Abandoned);
            }
        }
    }
}

impl Label for UnitLabel {
    fn describe(&self) -> String {
        match self {
            Self::Web(exchange) => exchange.describe(),
            #[cfg(feature = "jobs")]
            Self::Jobs(job) => job.describe(),
            #[cfg(feature = "streams")]
            Self::Streams(batch) => batch.describe(),
        }
    }

    fn id(&self) -> u64 {
        match self {
            Self::Web(exchange) => exchange.id(),
            #[cfg(feature = "jobs")]
            // Requests are numbered by themselves: no job may be taken for one.
            Self::Jobs(job) => job.id() | 1 << 62,
            #[cfg(feature = "streams")]
            Self::Streams(batch) => batch.id() | 1 << 61,
        }
    }
}
