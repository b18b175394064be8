//! Limits and batches.

use super::resp::{Pack, Value};
use super::scripts::Script;
use super::{ms, RedisStore};
use crate::store::{BatchStatus, Grant, LimitRequest, LimitRule, NewBatch, Result};

/// Failed jids that are shown.
const FAILED_SHOWN: usize = 1000;

impl RedisStore {
    pub(super) fn ask_limits(
        &mut self,
        owner: &str,
        asks: &[LimitRequest<'_>],
        now_s: f64,
    ) -> Result<Vec<Grant>> {
        if asks.is_empty() {
            return Ok(Vec::new());
        }
        let mut pack = Pack::new();
        let words = asks.iter().map(|ask| 2 + 4 * ask.limits.len()).sum::<usize>();
        self.conn.script(&mut pack, Script::Acquire, 2 + words)?;
        pack.float(now_s).word(owner);
        for ask in asks {
            pack.number(ask.ticket).number(ask.limits.len() as u64);
            for limit in ask.limits {
                let (kind, max, span) = match limit.rule {
                    LimitRule::Concurrent { max, hold_s } => ("slots", max, hold_s),
                    LimitRule::Window { max, per_s } => ("window", max, per_s),
                    LimitRule::Bucket { max, per_s } => ("bucket", max, per_s),
                };
                pack.word(kind).word(&limit.key).number(max).float(span);
            }
        }
        let answers = self.run(&pack)?.next().unwrap_or(Value::Nil).items();
        let grant = |answer: Value| match answer.text().as_str() {
            "" => Grant::Now,
            time => Grant::At(time.parse().ok()),
        };
        Ok(answers.into_iter().map(grant).collect())
    }

    pub(super) fn open_batch(&mut self, batch: &NewBatch<'_>) -> Result<()> {
        let mut pack = Pack::new();
        self.conn.script(&mut pack, Script::BatchOpen, 5 + 3 * batch.callbacks.len())?;
        pack.word(batch.bid).word(batch.parent.unwrap_or_default()).word(batch.description);
        pack.number(ms(batch.ttl)).float(batch.now_s);
        for (event, queue, payload) in batch.callbacks {
            pack.word(event).word(queue).word(payload);
        }
        self.run(&pack).map(|_| ())
    }

    pub(super) fn show_batch(&mut self, bid: &str) -> Result<Option<BatchStatus>> {
        let key = format!("chaton:batch:{bid}");
        let failed = format!("{key}:failed");
        let mut pack = Pack::new();
        pack.command(&[b"HGETALL", key.as_bytes()]);
        pack.command(&[b"SCARD", failed.as_bytes()]);
        let count = FAILED_SHOWN.to_string();
        pack.command(&[b"SRANDMEMBER", failed.as_bytes(), count.as_bytes()]);
        let mut replies = self.run(&pack)?;
        let mut next = || replies.next().unwrap_or(Value::Nil);
        let (hash, failures, jids) = (next().pairs(), next().count(), next().items());
        if hash.is_empty() {
            return Ok(None);
        }
        let mut failed_jids: Vec<String> = jids.into_iter().map(Value::text).collect();
        failed_jids.sort_unstable();
        let mut status =
            BatchStatus { bid: bid.into(), failures, failed_jids, ..BatchStatus::default() };
        for (field, value) in hash {
            match field.text().as_str() {
                "description" => status.description = value.text(),
                "parent" => status.parent = Some(value.text()),
                "created_at" => status.created_at = value.float().unwrap_or_default(),
                "total" => status.total = value.count(),
                "pending" => status.pending = value.count(),
                "children" => status.children_pending = value.count(),
                "complete" => status.complete = true,
                "success" => status.success = true,
                "dead" => status.dead = true,
                _ => {}
            }
        }
        Ok(Some(status))
    }
}
