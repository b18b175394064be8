//! Limiters.

use super::scripts::Script;
use super::store::RedisStore;
use crate::store::traits::Result;
use crate::store::types::{Grant, HeldLock, LimitRequest};
use chaton_redis::{Pipeline, RespValue};

pub(super) fn acquire(
    store: &mut RedisStore,
    owner: &str,
    requests: &[LimitRequest<'_>],
    now_s: f64,
) -> Result<Vec<Grant>> {
    if requests.is_empty() {
        return Ok(Vec::new());
    }
    let mut pipeline = Pipeline::new();
    let words = requests.iter().map(|request| 4 + 3 * request.limits.len()).sum::<usize>();
    store.conn.script(&mut pipeline, Script::Acquire, 2 + words)?;
    pipeline.float(now_s).word(owner);
    for request in requests {
        pipeline.number(request.ticket).word(request.jid).float(request.place);
        pipeline.number(request.limits.len() as u64);
        for limit in request.limits {
            let (max, span_s) = limit.rule.size();
            pipeline.word(limit.line()).number(max).float(span_s);
        }
    }
    let answers = store.run(&pipeline)?.next().unwrap_or(RespValue::Nil).items();
    let grant = |answer: RespValue| match answer.text().split_once(' ') {
        Some((limit, at)) => {
            Grant::Behind { limit: limit.parse().unwrap_or(0), at: at.parse().ok() }
        }
        None => Grant::Now,
    };
    Ok(answers.into_iter().map(grant).collect())
}

pub(super) fn unlock(store: &mut RedisStore, locks: &[HeldLock<'_>]) -> Result<()> {
    if locks.is_empty() {
        return Ok(());
    }
    let words: Vec<&[u8]> =
        locks.iter().flat_map(|l| [l.key.as_bytes(), l.jid.as_bytes()]).collect();
    store.call(Script::Unlock, &words).map(|_| ())
}
