//! What expires: cancels, and small hashes.

use std::time::Duration;

use super::scripts::Script;
use super::store::{ms, RedisStore};
use crate::store::clock::unix_s;
use crate::store::traits::Result;
use crate::store::types::CANCEL_TTL;
use chaton_redis::{Pipeline, RespValue};

pub(super) fn cancel(store: &mut RedisStore, jid: &str) -> Result<()> {
    let now = unix_s();
    let mut pipeline = Pipeline::new();
    pipeline.begin(4).word("ZADD").word("chaton:cancels").float(now).word(jid);
    pipeline.begin(4).word("ZREMRANGEBYSCORE").word("chaton:cancels").word("-inf");
    pipeline.float(now - CANCEL_TTL.as_secs_f64());
    store.conn.atomic(&pipeline).map(|_| ())
}

pub(super) fn cancelled(store: &mut RedisStore, jids: &[&str]) -> Result<Vec<bool>> {
    if jids.is_empty() {
        return Ok(Vec::new());
    }
    let mut pipeline = Pipeline::new();
    pipeline.begin(jids.len() + 2).word("ZMSCORE").word("chaton:cancels");
    for jid in jids {
        pipeline.word(jid);
    }
    let oldest = unix_s() - CANCEL_TTL.as_secs_f64();
    let scores = store.run(&pipeline)?.next().unwrap_or(RespValue::Nil).items();
    Ok(scores.iter().map(|s| s.float().is_some_and(|at| at > oldest)).collect())
}

pub(super) fn load(store: &mut RedisStore, key: &str) -> Result<Vec<(String, Vec<u8>)>> {
    let hash = store.one(&[b"HGETALL", key.as_bytes()])?;
    Ok(hash.pairs().into_iter().map(|(field, value)| (field.text(), value.bytes())).collect())
}

pub(super) fn save(
    store: &mut RedisStore,
    key: &str,
    fields: &[(&str, &[u8])],
    ttl: Duration,
) -> Result<()> {
    if fields.is_empty() {
        return Ok(());
    }
    let mut pipeline = Pipeline::new();
    store.conn.script(&mut pipeline, Script::Save, 2 + 2 * fields.len())?;
    pipeline.word(key).number(ms(ttl));
    for (field, value) in fields {
        pipeline.word(field).word(value);
    }
    store.run(&pipeline).map(|_| ())
}
