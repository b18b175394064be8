//! Batches.

use std::collections::BTreeSet;

use super::scripts::Script;
use super::store::{ms, RedisStore};
use crate::store::traits::Result;
use crate::store::types::{
    BatchStatus, NewBatch, BATCH_OPEN_MAX, FAILED_JIDS_MAX, OPEN_BATCHES_MAX,
};
use chaton_redis::{Pipeline, RespValue};

/// What every batch's key begins with.
const BATCH_KEY: &str = "chaton:batch:";
/// Keys that are looked at to find batches, and how many in one round trip: of them there is no list.
const SCANNED_MAX: usize = 200_000;
const SCANNED_AT_ONCE: usize = 2_000;
/// Batches, also those that have succeeded and are kept for a while, whose counts are read.
const LOOKED_AT_MAX: usize = 1_000;

pub(super) fn unfinished(store: &mut RedisStore, max: usize) -> Result<Vec<BatchStatus>> {
    let (pattern, count) = (format!("{BATCH_KEY}*"), SCANNED_AT_ONCE.to_string());
    let (mut cursor, mut bids) = ("0".to_owned(), BTreeSet::new());
    for _ in 0..SCANNED_MAX / SCANNED_AT_ONCE {
        let words: [&[u8]; 8] = [
            b"SCAN",
            cursor.as_bytes(),
            b"MATCH",
            pattern.as_bytes(),
            b"COUNT",
            count.as_bytes(),
            b"TYPE",
            b"hash",
        ];
        let mut reply = store.one(&words)?.items().into_iter();
        cursor = reply.next().map(RespValue::text).unwrap_or_default();
        let keys = reply.next().map(RespValue::items).unwrap_or_default().into_iter();
        let found = keys.filter_map(|key| Some(key.text().strip_prefix(BATCH_KEY)?.to_owned()));
        // Further keys of a batch have another word after its id.
        bids.extend(found.filter(|bid| !bid.contains(':')));
        if cursor == "0" || bids.len() >= LOOKED_AT_MAX {
            break;
        }
    }
    let mut batches = Vec::new();
    for bid in bids.iter().take(LOOKED_AT_MAX) {
        batches.extend(status(store, bid)?.filter(|one| !one.success));
    }
    batches.sort_by(|a, b| b.created_at.total_cmp(&a.created_at));
    batches.truncate(max);
    Ok(batches)
}

pub(super) fn open(store: &mut RedisStore, batch: &NewBatch<'_>) -> Result<()> {
    let mut pipeline = Pipeline::new();
    store.conn.script(&mut pipeline, Script::BatchOpen, 6 + 3 * batch.callbacks.len())?;
    pipeline.word(batch.bid).word(batch.parent.unwrap_or_default()).word(batch.description);
    pipeline.number(ms(batch.ttl)).float(batch.now_s).word(batch.owner);
    for (event, queue, payload) in batch.callbacks {
        pipeline.word(event).word(queue).word(payload);
    }
    store.run(&pipeline).map(|_| ())
}

pub(super) fn remove_open(store: &mut RedisStore, bid: Option<&str>) -> Result<Vec<BatchStatus>> {
    let (seconds, count) = (BATCH_OPEN_MAX.as_secs().to_string(), OPEN_BATCHES_MAX.to_string());
    let words = [bid.unwrap_or_default().as_bytes(), seconds.as_bytes(), count.as_bytes()];
    let mut words = store.call(Script::RemoveOpen, &words)?.items().into_iter();
    let mut gone = Vec::new();
    while let (Some(bid), Some(text), Some(total)) = (words.next(), words.next(), words.next()) {
        let (bid, description, total) = (bid.text(), text.text(), total.count());
        gone.push(BatchStatus { bid, description, total, ..BatchStatus::default() });
    }
    Ok(gone)
}

pub(super) fn status(store: &mut RedisStore, bid: &str) -> Result<Option<BatchStatus>> {
    let key = format!("{BATCH_KEY}{bid}");
    let failed = format!("{key}:failed");
    let mut pipeline = Pipeline::new();
    pipeline.command(&[b"HGETALL", key.as_bytes()]);
    pipeline.command(&[b"SCARD", failed.as_bytes()]);
    let count = FAILED_JIDS_MAX.to_string();
    pipeline.command(&[b"SRANDMEMBER", failed.as_bytes(), count.as_bytes()]);
    let mut replies = store.run(&pipeline)?;
    let mut next = || replies.next().unwrap_or(RespValue::Nil);
    let (hash, failures, jids) = (next().pairs(), next().count(), next().items());
    if hash.is_empty() {
        return Ok(None);
    }
    let mut failed_jids: Vec<String> = jids.into_iter().map(RespValue::text).collect();
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
