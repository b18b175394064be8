//! Waits for the server to say that a key changed that was read here (RESP3,
//! `CLIENT TRACKING`): nothing is asked while nothing happens but one PING in
//! [`PING_EVERY`], so a peer that vanished without a word is found out within
//! that time and one answer's.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::conn::{Conn, Shared};
use super::due::read_next;
use super::link::{Ready, Wake};
use super::resp::{Pack, Value};
use crate::store::{Availability, Interrupt, Result, StoreError, StoreWatch, WatchEvent};

/// Silence after which the server is asked whether it lives.
const PING_EVERY: Duration = Duration::from_secs(10);

/// A watcher.
pub struct RedisWatch {
    conn: Conn,
    shared: Arc<Shared>,
    wake: Option<Arc<WakeUp>>,
    queues: Vec<Arc<str>>,
}

struct WakeUp(Wake);

impl Interrupt for WakeUp {
    fn interrupt(&self) {
        self.0.raise();
    }
}

/// Without a descriptor to raise there is nothing to interrupt: waits fail.
struct NoWake;

impl Interrupt for NoWake {
    fn interrupt(&self) {}
}

impl RedisWatch {
    /// Not connected yet.
    pub fn new(shared: Arc<Shared>) -> Self {
        let wake = Wake::new().ok().map(|wake| Arc::new(WakeUp(wake)));
        Self { conn: Conn::new(shared.clone(), true), shared, wake, queues: Vec::new() }
    }

    fn heard(&mut self) -> Option<WatchEvent> {
        let messages = self.conn.pushes();
        let (mut queues, mut other, mut any) = (Vec::new(), false, false);
        for message in messages {
            let mut parts = message.into_iter();
            if parts.next() != Some(Value::Bulk(b"invalidate".to_vec())) {
                continue;
            }
            any = true;
            match parts.next() {
                Some(Value::Array(keys)) => {
                    for key in keys {
                        match self.queue(&key.bytes()) {
                            Some(queue) if queues.contains(&queue) => {}
                            Some(queue) => queues.push(queue),
                            None => other = true,
                        }
                    }
                }
                // The server was flushed.
                _ => other = true,
            }
        }
        any.then_some(WatchEvent::Changed { queues, other })
    }

    fn queue(&self, key: &[u8]) -> Option<Arc<str>> {
        let name = key.strip_prefix(b"queue:")?;
        self.queues.iter().find(|queue| queue.as_bytes() == name).cloned()
    }
}

impl StoreWatch for RedisWatch {
    fn arm(&mut self, queues: &[Arc<str>]) -> Result<Availability> {
        self.queues = queues.to_vec();
        let mut pack = Pack::new();
        for queue in queues {
            pack.begin(2).word("LLEN").parts(&[b"queue:", queue.as_bytes()]);
        }
        pack.command(&[b"SMEMBERS", b"paused"]);
        for set in ["retry", "schedule"] {
            pack.begin(5).word("ZRANGE").word(set).word("0").word("0").word("WITHSCORES");
        }
        pack.command(&[b"ZCARD", b"chaton:cancels"]);
        // What was heard before is old news: it is all read anew.
        self.conn.pushes();
        let mut replies = self.conn.run(&pack)?.into_iter();
        let sizes: Vec<u64> = replies.by_ref().take(queues.len()).map(|n| n.count()).collect();
        let paused = replies.next().unwrap_or(Value::Nil).items();
        let is_paused = |queue: &str| paused.contains(&Value::Bulk(queue.as_bytes().to_vec()));
        let ready = queues.iter().zip(sizes).any(|(queue, size)| size > 0 && !is_paused(queue));
        Ok(Availability { ready, next_at: read_next(replies) })
    }

    fn wait(&mut self, timeout: Duration) -> Result<WatchEvent> {
        let Some(wake) = self.wake.clone() else {
            return Err(StoreError::unavailable(format!(
                "{}: no descriptor left to wait with; raise the limit of open files",
                self.shared.address.shown
            )));
        };
        let deadline = Instant::now() + timeout;
        let answer = self.shared.address.answer_timeout;
        let mut quiet_since = Instant::now();
        let mut asked = false;
        loop {
            if wake.0.take() {
                return Ok(WatchEvent::Interrupted);
            }
            // Not armed, or armed on a connection that is gone: look again.
            if !self.conn.is_live() {
                return Ok(WatchEvent::Changed { queues: Vec::new(), other: true });
            }
            if let Some(event) = self.heard() {
                return Ok(event);
            }
            let now = Instant::now();
            let patience = quiet_since + if asked { answer } else { PING_EVERY };
            if now >= patience {
                if asked {
                    self.conn.close();
                    return Err(StoreError::unavailable(format!(
                        "{}: no answer to a PING within {} s",
                        self.shared.address.shown,
                        answer.as_secs_f64()
                    )));
                }
                self.conn.ask(&[b"PING"])?;
                asked = true;
                quiet_since = now;
                continue;
            }
            let left = deadline.min(patience).saturating_duration_since(now);
            match self.conn.listen(&wake.0, left)? {
                Ready::Link => {
                    asked = false;
                    quiet_since = Instant::now();
                }
                Ready::Nothing if now >= deadline => return Ok(WatchEvent::Timeout),
                _ => {}
            }
        }
    }

    fn interrupter(&self) -> Arc<dyn Interrupt> {
        match &self.wake {
            Some(wake) => wake.clone(),
            None => Arc::new(NoWake),
        }
    }
}
