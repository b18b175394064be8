//! Begins spans and decides which of them are recorded.

use std::cell::RefCell;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use chaton_core::process::scoreboard::OwnGauges;

use crate::config::Config;
use crate::exporter::Exporter;
use crate::span_context::SpanContext;
use crate::span_queue::SpanQueue;
use crate::work_span::{SpanKind, WorkSpan};

/// Begins the spans of one process and sends those that have ended.
pub struct Tracing {
    /// Of 2 to the power of 63 traces that begin here, how many are recorded.
    threshold: u64,
    follow_parent: bool,
    query: bool,
    queue: Arc<SpanQueue>,
    _exporter: Exporter,
}

impl Tracing {
    /// Starts the thread that sends the spans. Never call it in a process that will fork.
    ///
    /// # Errors
    /// When the operating system gives no thread, or a header cannot be sent.
    pub fn start(config: Config, gauges: Option<OwnGauges>) -> io::Result<Self> {
        let queue = Arc::new(SpanQueue::new(&config, gauges));
        Ok(Self {
            threshold: threshold(config.sample),
            follow_parent: config.follow_parent,
            query: config.query,
            _exporter: Exporter::start(config, queue.clone())?,
            queue,
        })
    }

    /// Whether spans of requests have their query strings.
    pub fn has_query(&self) -> bool {
        self.query
    }

    /// Begins a span below `parent`, or a new trace.
    pub fn begin(&self, kind: SpanKind, parent: Option<&SpanContext>) -> WorkSpan {
        let trace_id = parent.map_or_else(new_trace_id, |parent| parent.trace_id);
        let sampled = match parent {
            Some(parent) if self.follow_parent => parent.sampled,
            // Every process that samples by the same ratio decides the same for a trace.
            _ => (trace_id as u64) >> 1 < self.threshold,
        };
        let state = parent.and_then(|parent| parent.state.clone());
        let context = SpanContext { trace_id, span_id: new_span_id(), sampled, state };
        if sampled {
            return WorkSpan::recorded(context, kind, parent);
        }
        WorkSpan::unrecorded(context)
    }

    /// Ends a span and sends it soon, if it is recorded.
    pub fn end(&self, span: WorkSpan) {
        if let Some(record) = span.end() {
            self.queue.push(record);
        }
    }

    /// Sends what is left, and ends the thread. Returns how many spans could not be sent in this time.
    pub fn stop(&self, within: Duration) -> usize {
        self.queue.stop(within)
    }
}

thread_local! {
    /// Two, because one has only 64 bits of state. Their seeds are of the system's generator, so that no two
    /// processes draw the same ids.
    static RANDOM: RefCell<[fastrand::Rng; 2]> = RefCell::new([seeded(), seeded()]);
}

fn seeded() -> fastrand::Rng {
    fastrand::Rng::with_seed(RandomState::new().hash_one(0))
}

/// Never 0.
fn new_trace_id() -> u128 {
    let [high, low] = RANDOM.with_borrow_mut(|[high, low]| [high.u64(1..), low.u64(..)]);
    u128::from(high) << 64 | u128::from(low)
}

/// Never 0.
fn new_span_id() -> u64 {
    RANDOM.with_borrow_mut(|[_, low]| low.u64(1..))
}

fn threshold(ratio: f64) -> u64 {
    (ratio.clamp(0.0, 1.0) * (1_u64 << 63) as f64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::span_queue::tests::config;

    fn tracing(sample: f64, follow_parent: bool) -> Tracing {
        let config = Config { sample, follow_parent, ..config(4, 2) };
        let queue = Arc::new(SpanQueue::new(&config, None));
        let threshold = threshold(config.sample);
        Tracing { threshold, follow_parent, query: false, queue, _exporter: Exporter::none() }
    }

    fn parent(sampled: bool) -> SpanContext {
        SpanContext { trace_id: u128::MAX, span_id: 5, sampled, state: Some("a=1".into()) }
    }

    #[test]
    fn a_child_is_recorded_just_when_its_parent_is() {
        for (sampled, ratio) in [(true, 0.0), (false, 1.0)] {
            let span = tracing(ratio, true).begin(SpanKind::Server, Some(&parent(sampled)));
            assert_eq!((span.is_recorded(), span.context().sampled), (sampled, sampled));
            assert_eq!(span.context().trace_id, u128::MAX);
            assert_eq!(span.context().state.as_deref(), Some("a=1"));
            assert_ne!(span.context().span_id, 5);
        }
    }

    #[test]
    fn without_following_the_ratio_decides_for_children_too() {
        assert!(!tracing(0.5, false).begin(SpanKind::Server, Some(&parent(true))).is_recorded());
        assert!(tracing(1.0, false).begin(SpanKind::Server, Some(&parent(false))).is_recorded());
    }

    #[test]
    fn about_the_ratio_of_new_traces_is_recorded() {
        let tracing = tracing(0.25, true);
        let recorded =
            (0..4000).filter(|_| tracing.begin(SpanKind::Server, None).is_recorded()).count();
        // Ten times the standard deviation of 27.
        assert!((730..1270).contains(&recorded), "{recorded}");
        assert!(
            (0..100).all(|_| !self::tracing(0.0, true).begin(SpanKind::Server, None).is_recorded())
        );
        assert!(
            (0..100).all(|_| self::tracing(1.0, true).begin(SpanKind::Server, None).is_recorded())
        );
    }
}
