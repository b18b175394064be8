//! Limiters.

use super::resp::{Pipeline, RespValue};
use super::scripts::Script;
use super::store::RedisStore;
use crate::limit::LimitRule;
use crate::store::traits::Result;
use crate::store::types::{Grant, LimitRequest};

impl RedisStore {
    pub(super) fn acquire_limits(
        &mut self,
        owner: &str,
        requests: &[LimitRequest<'_>],
        now_s: f64,
    ) -> Result<Vec<Grant>> {
        if requests.is_empty() {
            return Ok(Vec::new());
        }
        let mut pipeline = Pipeline::new();
        let words = requests.iter().map(|request| 2 + 4 * request.limits.len()).sum::<usize>();
        self.conn.script(&mut pipeline, Script::Acquire, 2 + words)?;
        pipeline.float(now_s).word(owner);
        for request in requests {
            pipeline.number(request.ticket).number(request.limits.len() as u64);
            for limit in request.limits {
                let (kind, max, span) = match limit.rule {
                    LimitRule::Concurrent { max, hold_s } => ("slots", max, hold_s),
                    LimitRule::Window { max, per_s } => ("window", max, per_s),
                    LimitRule::Bucket { max, per_s } => ("bucket", max, per_s),
                };
                pipeline.word(kind).word(&limit.key).number(max).float(span);
            }
        }
        let answers = self.run(&pipeline)?.next().unwrap_or(RespValue::Nil).items();
        let grant = |answer: RespValue| match answer.text().as_str() {
            "" => Grant::Now,
            time => Grant::At(time.parse().ok()),
        };
        Ok(answers.into_iter().map(grant).collect())
    }
}
