//! Spans that have ended and wait to be sent: a bounded queue between the threads that run work and the one
//! that sends.

use std::collections::VecDeque;
use std::mem;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use chaton_core::process::scoreboard::OwnGauges;
use parking_lot::{Condvar, Mutex};

use crate::config::Config;
use crate::otlp::Span;

/// The queue.
pub struct SpanQueue {
    state: Mutex<QueueState>,
    changed: Condvar,
    max: usize,
    batch_max: usize,
    interval: Duration,
    gauges: Option<OwnGauges>,
}

#[derive(Default)]
struct QueueState {
    spans: VecDeque<Span>,
    /// When the first of them came.
    since: Option<Instant>,
    /// Spans of the batch that is being sent.
    in_hand: usize,
    /// Spans that were lost and are not in the log yet.
    unreported: usize,
    stop: Option<StopState>,
}

struct StopState {
    until: Instant,
    lost: usize,
    ended: bool,
}

impl SpanQueue {
    /// An empty queue.
    pub fn new(config: &Config, gauges: Option<OwnGauges>) -> Self {
        Self {
            state: Mutex::default(),
            changed: Condvar::new(),
            max: config.queue_max,
            batch_max: config.batch_max,
            interval: config.interval,
            gauges,
        }
    }

    /// Adds a span, or drops it when the queue is full. Never waits.
    pub fn push(&self, span: Span) {
        let mut state = self.state.lock();
        if state.spans.len() >= self.max || state.stop.as_ref().is_some_and(|stop| stop.ended) {
            return self.lose(&mut state, 1);
        }
        state.spans.push_back(span);
        let count = state.spans.len();
        if count == 1 {
            state.since = Some(Instant::now());
        }
        // The sender sleeps until the first one, then for the interval or until a batch is full.
        let wake = count == 1 || count == self.batch_max;
        drop(state);
        if wake {
            self.changed.notify_one();
        }
    }

    /// Waits for the next batch; `None` when the queue has stopped and is empty.
    pub fn next_batch(&self) -> Option<Vec<Span>> {
        let mut state = self.state.lock();
        loop {
            let count = state.spans.len();
            let due = state.since.map(|since| since + self.interval);
            let is_due = due.is_some_and(|due| Instant::now() >= due);
            if count > 0 && (count >= self.batch_max || is_due || state.stop.is_some()) {
                let batch: Vec<_> = state.spans.drain(..count.min(self.batch_max)).collect();
                state.since = (count > batch.len()).then(Instant::now);
                state.in_hand = batch.len();
                return Some(batch);
            }
            match due {
                _ if state.stop.is_some() => return None,
                Some(due) => {
                    self.changed.wait_until(&mut state, due);
                }
                None => self.changed.wait(&mut state),
            }
        }
    }

    /// The batch has been taken by the collector, but for `rejected` of its spans.
    pub fn sent(&self, rejected: usize) {
        let mut state = self.state.lock();
        let count = mem::take(&mut state.in_hand);
        let rejected = rejected.min(count);
        if let Some(gauges) = &self.gauges {
            gauges.counters().traces.sent.fetch_add((count - rejected) as u64, Relaxed);
        }
        self.lose(&mut state, rejected);
    }

    /// The batch is given up.
    pub fn give_up(&self) {
        let mut state = self.state.lock();
        let count = mem::take(&mut state.in_hand);
        self.lose(&mut state, count);
    }

    /// Waits for this long, or until the queue is to stop.
    pub fn pause(&self, time: Duration) {
        let until = Instant::now() + time;
        let mut state = self.state.lock();
        while state.stop.is_none() && Instant::now() < until {
            self.changed.wait_until(&mut state, until);
        }
    }

    /// How long the sender may go on; `None`: the queue is not to stop.
    pub fn time_left(&self) -> Option<Duration> {
        let state = self.state.lock();
        state.stop.as_ref().map(|stop| stop.until.saturating_duration_since(Instant::now()))
    }

    /// How many spans were lost since the last call.
    pub fn take_unreported(&self) -> usize {
        mem::take(&mut self.state.lock().unreported)
    }

    /// The sender has ended.
    pub fn ended(&self) {
        let mut state = self.state.lock();
        if let Some(stop) = &mut state.stop {
            stop.ended = true;
        }
        self.changed.notify_all();
    }

    /// Has the sender send what is left and end, and waits for that. What it has not sent in this time is lost;
    /// returns how many spans that were.
    pub fn stop(&self, within: Duration) -> usize {
        let until = Instant::now() + within;
        let mut state = self.state.lock();
        state.stop = Some(StopState { until, lost: 0, ended: false });
        self.changed.notify_all();
        let has_ended = |state: &QueueState| state.stop.as_ref().is_some_and(|stop| stop.ended);
        while !has_ended(&state) && Instant::now() < until {
            self.changed.wait_until(&mut state, until);
        }
        let left = state.spans.len() + mem::take(&mut state.in_hand);
        state.spans.clear();
        self.lose(&mut state, left);
        state.stop.as_mut().map_or(0, |stop| {
            stop.ended = true;
            stop.lost
        })
    }

    fn lose(&self, state: &mut QueueState, count: usize) {
        state.unreported += count;
        if let Some(stop) = &mut state.stop {
            stop.lost += count;
        }
        if let Some(gauges) = &self.gauges {
            gauges.counters().traces.dropped.fetch_add(count as u64, Relaxed);
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use chaton_core::process::scoreboard::Scoreboard;
    use std::sync::Arc;
    use std::thread;

    const LONG: Duration = Duration::from_secs(60);

    pub fn config(queue_max: usize, batch_max: usize) -> Config {
        Config {
            endpoint: "http://127.0.0.1:9/v1/traces".into(),
            headers: vec![],
            sample: 1.0,
            follow_parent: true,
            query: false,
            resource: vec![],
            version: "0".into(),
            queue_max,
            batch_max,
            interval: LONG,
            timeout: LONG,
        }
    }

    fn queue(queue_max: usize, batch_max: usize) -> (Arc<SpanQueue>, Arc<Scoreboard>) {
        let scoreboard = Arc::new(Scoreboard::new(1).unwrap());
        let gauges = OwnGauges::new(scoreboard.clone(), 0);
        (Arc::new(SpanQueue::new(&config(queue_max, batch_max), Some(gauges))), scoreboard)
    }

    fn push(queue: &SpanQueue, count: usize) {
        (0..count).for_each(|_| queue.push(Span::default()));
    }

    /// Sent and dropped.
    fn counts(scoreboard: &Scoreboard) -> (u64, u64) {
        let traces = &scoreboard.counters(0).traces;
        (traces.sent.load(Relaxed), traces.dropped.load(Relaxed))
    }

    #[test]
    fn spans_above_the_bound_are_dropped_and_counted() {
        let (queue, scoreboard) = queue(4, 2);
        push(&queue, 7);
        assert_eq!(counts(&scoreboard), (0, 3));
        assert_eq!(queue.next_batch().map(|batch| batch.len()), Some(2));
        queue.sent(0);
        assert_eq!(queue.next_batch().map(|batch| batch.len()), Some(2));
        queue.sent(1);
        assert_eq!(counts(&scoreboard), (3, 4));
        assert_eq!((queue.take_unreported(), queue.take_unreported()), (4, 0));
    }

    #[test]
    fn a_batch_waits_until_it_is_full() {
        let (queue, _scoreboard) = queue(9, 3);
        let taker = thread::spawn({
            let queue = queue.clone();
            move || queue.next_batch().map(|batch| batch.len())
        });
        push(&queue, 3);
        assert_eq!(taker.join().unwrap(), Some(3));
    }

    #[test]
    fn a_stop_sends_what_is_left() {
        let (queue, scoreboard) = queue(9, 3);
        push(&queue, 4);
        let sender = thread::spawn({
            let queue = queue.clone();
            move || {
                while queue.next_batch().is_some() {
                    queue.sent(0);
                }
                queue.ended();
            }
        });
        assert_eq!(queue.stop(LONG), 0);
        sender.join().unwrap();
        assert_eq!(counts(&scoreboard), (4, 0));
        push(&queue, 1);
        assert_eq!(counts(&scoreboard), (4, 1));
    }

    #[test]
    fn a_stop_counts_what_its_time_is_too_short_for() {
        let (queue, scoreboard) = queue(9, 3);
        push(&queue, 4);
        assert_eq!(queue.next_batch().map(|batch| batch.len()), Some(3));
        assert_eq!(queue.stop(Duration::ZERO), 4);
        // The sender's call returns after all.
        queue.sent(0);
        assert_eq!(counts(&scoreboard), (0, 4));
        assert!(queue.next_batch().is_none());
    }

    #[test]
    fn a_pause_ends_with_a_stop() {
        let (queue, _scoreboard) = queue(9, 3);
        push(&queue, 1);
        let sender = thread::spawn({
            let queue = queue.clone();
            move || {
                queue.pause(Duration::from_secs(3600));
                queue.give_up();
                queue.time_left().is_some()
            }
        });
        queue.stop(Duration::ZERO);
        assert!(sender.join().unwrap());
    }
}
