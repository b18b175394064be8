//! Waits for changes of keys, which the server reports for all keys that were read on this
//! connection (RESP3, `CLIENT TRACKING`). While nothing happens the only traffic is a PING every
//! [`PING_EVERY`], which finds a peer that vanished within that time and one reply's.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chaton_core::event_fd::EventFd;

use super::due::read_next_at;
use super::store::ms;
use super::LISTS;
use crate::store::poll::EventInterrupt;
use crate::store::traits::{Interrupt, Result, StoreWatch};
use crate::store::types::{Availability, StoreEvent};
use crate::store::StoreError;
use chaton_redis::{Pipeline, PollResult, RedisConnection, RespValue, ServerHandle};

/// Silence after which the server is asked for a PONG.
const PING_EVERY: Duration = Duration::from_secs(10);

/// A watch of one server.
pub struct RedisWatch {
    conn: RedisConnection,
    /// `None` when the process had no descriptor left; waits fail then.
    interrupt: Option<Arc<EventFd>>,
    queues: Vec<Arc<str>>,
    /// Those in which the last look found jobs.
    ready: Vec<Arc<str>>,
}

impl RedisWatch {
    /// Does not connect yet.
    pub fn new(server: Arc<ServerHandle>) -> Self {
        let interrupt = EventFd::new().ok().map(Arc::new);
        interrupt.iter().for_each(|interrupt| server.add_watch(interrupt));
        Self {
            conn: RedisConnection::tracking(server),
            interrupt,
            queues: Vec::new(),
            ready: Vec::new(),
        }
    }

    /// The changes that the server has reported.
    fn reported(&mut self) -> Option<StoreEvent> {
        let mut messages = self.conn.pushes().into_iter().map(Vec::into_iter);
        let is_change = |message: &mut std::vec::IntoIter<RespValue>| {
            message.next() == Some(RespValue::Bulk(b"invalidate".to_vec()))
        };
        let (mut queues, mut other, mut any) = (Vec::new(), false, false);
        for mut message in messages.by_ref().filter_map(|mut m| is_change(&mut m).then_some(m)) {
            any = true;
            // Without keys: the server was flushed.
            let Some(RespValue::Array(keys)) = message.next() else {
                other = true;
                continue;
            };
            for key in keys {
                match self.queue(&key.bytes()) {
                    Some(queue) if queues.contains(&queue) => {}
                    Some(queue) => queues.push(queue),
                    None => other = true,
                }
            }
        }
        any.then_some(StoreEvent::Changed { queues, other })
    }

    fn queue(&self, key: &[u8]) -> Option<Arc<str>> {
        let name = LISTS.iter().find_map(|list| key.strip_prefix(list.as_bytes()))?;
        self.queues.iter().find(|queue| queue.as_bytes() == name).cloned()
    }
}

impl StoreWatch for RedisWatch {
    fn arm(&mut self, queues: &[Arc<str>]) -> Result<Availability> {
        self.queues = queues.to_vec();
        let mut pipeline = Pipeline::new();
        for queue in queues {
            for list in LISTS {
                pipeline.begin(2).word("LLEN").parts(&[list.as_bytes(), queue.as_bytes()]);
            }
        }
        pipeline.command(&[b"SMEMBERS", b"paused"]);
        for set in ["retry", "schedule"] {
            pipeline.begin(5).word("ZRANGE").word(set).word("0").word("0").word("WITHSCORES");
        }
        pipeline.command(&[b"ZCARD", b"chaton:cancels"]);
        // Older messages are dropped: everything is read again.
        self.conn.pushes();
        let mut replies = self.conn.run(&pipeline)?.into_iter();
        let lists = replies.by_ref().take(LISTS.len() * queues.len());
        let lengths: Vec<u64> = lists.map(|length| length.count()).collect();
        let sizes = lengths.chunks(LISTS.len()).map(|lists| lists.iter().sum::<u64>());
        let paused = replies.next().unwrap_or(RespValue::Nil).items();
        let is_paused = |queue: &str| paused.contains(&RespValue::Bulk(queue.as_bytes().to_vec()));
        let ready = queues.iter().zip(sizes).filter(|(queue, size)| *size > 0 && !is_paused(queue));
        self.ready = ready.map(|(queue, _)| queue.clone()).collect();
        Ok(Availability { ready: !self.ready.is_empty(), next_at: read_next_at(replies) })
    }

    fn take_turn(&mut self, timeout: Duration) -> Result<bool> {
        let mut pipeline = Pipeline::new();
        for queue in &self.ready {
            pipeline.begin(6).word("SET").parts(&[b"chaton:turn:", queue.as_bytes()]).word("1");
            pipeline.word("NX").word("PX").number(ms(timeout));
        }
        // A full server refuses to store the turn, but gives its jobs.
        let replies = self.conn.pipeline(&pipeline)?;
        Ok(replies.iter().any(|reply| *reply != RespValue::Nil))
    }

    fn wait(&mut self, timeout: Duration) -> Result<StoreEvent> {
        let shown = |watch: &Self| watch.conn.address().shown.clone();
        let Some(interrupt) = self.interrupt.clone() else {
            return Err(StoreError::unavailable(format!(
                "{}: no descriptor left to wait with; raise the limit of open files",
                shown(self)
            )));
        };
        let deadline = Instant::now() + timeout;
        let answer = self.conn.address().answer_timeout;
        let mut silent_since = Instant::now();
        let mut pinged = false;
        loop {
            if interrupt.clear() {
                return Ok(StoreEvent::Interrupted);
            }
            // Not armed, or armed on a connection that is gone.
            if !self.conn.is_open() {
                return Ok(StoreEvent::Changed { queues: Vec::new(), other: true });
            }
            if let Some(event) = self.reported() {
                return Ok(event);
            }
            let now = Instant::now();
            let ping_at = silent_since + if pinged { answer } else { PING_EVERY };
            if now >= ping_at {
                if pinged {
                    self.conn.close();
                    return Err(StoreError::unavailable(format!(
                        "{}: no answer to a PING within {} s",
                        shown(self),
                        answer.as_secs_f64()
                    )));
                }
                self.conn.send(&[b"PING"])?;
                pinged = true;
                silent_since = now;
                continue;
            }
            let left = deadline.min(ping_at).saturating_duration_since(now);
            match self.conn.wait_for_push(&[interrupt.as_fd()], left)? {
                PollResult::Ready => {
                    pinged = false;
                    silent_since = Instant::now();
                }
                PollResult::TimedOut if now >= deadline => return Ok(StoreEvent::Timeout),
                _ => {}
            }
        }
    }

    fn interrupter(&self) -> Arc<dyn Interrupt> {
        Arc::new(EventInterrupt(self.interrupt.clone()))
    }
}
