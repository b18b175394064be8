//! The rows of the outbox: records that transactions of the application have stored for a log.

use chaton_core::outbox::OwnedRecord;
use tokio_postgres::Row;

use super::connection::{args, Call};
use super::constants::{hexadecimal, text};
use super::errors::Result;
use crate::store::types::OutboxStatus;

/// The header that tells a record from all others: who reads one twice knows it by that.
const ID_HEADER: &[u8] = b"outbox-id";
/// Age of the oldest row (s) from which a person should look.
pub(super) const LATE_S: f64 = 60.0;

/// Removes rows that the log has, keeps those that it refuses elsewhere, and reads the next ones: with the first and the
/// next number of a transaction that may still run, so that it has at least one row.
///
/// A transaction takes its number with its first write and may commit late, so rows are complete only below all that
/// still run. What comes first is the order of `id`, in which two transactions have locked what they have in common: the
/// numbers of transactions have no such order, so nothing behind a row that is not complete may be taken. Rows of a
/// database that was restored may have numbers that this server has not reached yet: no transaction that can be seen
/// here has them.
pub(super) const ROUND: &str = "
WITH gone AS (DELETE FROM chaton.outbox WHERE id=ANY($1)),
refused AS (DELETE FROM chaton.outbox o USING unnest($2, $3) AS u(id, why) WHERE o.id=u.id
    RETURNING o.id, xid, at, uuid, topic, partition, key, value, headers, timestamp_ms, why),
kept AS (INSERT INTO chaton.outbox_refused(id, xid, at, uuid, topic, partition, key, value, headers, timestamp_ms, why)
    SELECT * FROM refused),
seen AS MATERIALIZED (SELECT pg_snapshot_xmin(s) AS low, pg_snapshot_xmax(s) AS high FROM pg_current_snapshot() s)
SELECT id, topic, partition, key, CASE WHEN complete THEN value END, headers, timestamp_ms, uuid::text, complete,
low::text::bigint, high::text::bigint
FROM seen LEFT JOIN (SELECT *, sum(size) OVER (ORDER BY id) - size AS before FROM (
    SELECT id, topic, partition, key, value, headers, timestamp_ms, uuid,
    xid<(SELECT low FROM seen) OR xid>=(SELECT high FROM seen) AS complete,
    200 + coalesce(octet_length(value), 0) + coalesce(octet_length(key), 0) AS size
    FROM chaton.outbox WHERE id>$4 AND id<>ALL($5) ORDER BY id LIMIT $6) picked) next ON before<$7
ORDER BY id";

/// The oldest transaction that has written and still runs. One of another database counts, too.
pub(super) const BLOCKER: &str =
    "SELECT coalesce('the prepared transaction ' || p.gid, 'the transaction of process ' || l.pid
    || coalesce(format(' (%s)', nullif(concat_ws(', ', nullif(application_name, ''), a.datname, state), '')), '')
    || coalesce(format(', open for %s s,', extract(epoch FROM clock_timestamp()-xact_start)::bigint), ''))
    FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid=l.pid
    LEFT JOIN pg_prepared_xacts p ON l.pid IS NULL AND p.transaction=l.transactionid
    WHERE l.locktype='transactionid' AND l.mode='ExclusiveLock' AND l.granted AND l.pid IS DISTINCT FROM pg_backend_pid()
    ORDER BY age(l.transactionid) DESC LIMIT 1";

/// What to tell a person of the answer to [`BLOCKER`].
pub(super) fn blocked(row: Option<&Row>) -> String {
    let who = row.and_then(|row| row.get::<_, Option<String>>(0));
    let who = who.as_deref().unwrap_or("a transaction");
    format!("{who} has written and keeps them from being in order; end it, or set idle_in_transaction_session_timeout")
}

/// The statement that stores these records.
pub(super) fn insert(records: &[OwnedRecord]) -> String {
    let bytes = |value: &Option<Vec<u8>>| value.as_deref().map_or("NULL".into(), hexadecimal);
    let rows = records.iter().map(|record| {
        let parts =
            record.headers.iter().flat_map(|(name, value)| [hexadecimal(name), bytes(value)]);
        let headers: Vec<String> = parts.collect();
        let number = |value: Option<i64>| value.map_or("NULL".into(), |value| value.to_string());
        format!(
            "({},{}::integer,{}::bytea,{}::bytea,ARRAY[{}]::bytea[],{}::bigint)",
            text(&record.topic),
            number(record.partition.map(i64::from)),
            bytes(&record.key),
            bytes(&record.value),
            headers.join(","),
            number(record.timestamp_ms),
        )
    });
    let rows: Vec<String> = rows.collect();
    let columns = "topic, partition, key, value, headers, timestamp_ms";
    format!("INSERT INTO chaton.outbox({columns}) VALUES {}", rows.join(","))
}

/// The record of a row, with its id among the headers; `None`: a row that waits for a transaction, or no row.
pub(super) fn read(row: &Row) -> Option<(i64, OwnedRecord)> {
    if row.get::<_, Option<bool>>(8) != Some(true) {
        return None;
    }
    let parts: Vec<Option<Vec<u8>>> = row.get(5);
    let mut headers: Vec<_> = parts
        .chunks(2)
        .map(|pair| {
            let [name, value] = [pair.first(), pair.get(1)].map(|part| part.cloned().flatten());
            (name.unwrap_or_default(), value)
        })
        .collect();
    headers.push((ID_HEADER.into(), Some(row.get::<_, String>(7).into_bytes())));
    let record = OwnedRecord {
        topic: row.get(1),
        partition: row.get(2),
        key: row.get(3),
        value: row.get(4),
        headers,
        timestamp_ms: row.get(6),
    };
    Some((row.get::<_, Option<i64>>(0)?, record))
}

pub(super) fn status(call: &mut Call<'_>) -> Result<OutboxStatus> {
    let row = call.one(
        "SELECT coalesce((SELECT greatest(extract(epoch FROM clock_timestamp()-at), 0) FROM chaton.outbox
         ORDER BY id LIMIT 1), 0)::float8, (SELECT count(*) FROM chaton.outbox), (SELECT count(*) FROM chaton.outbox_refused)",
        args![],
    )?;
    Ok(row.map_or_else(OutboxStatus::default, |row| OutboxStatus {
        lag_s: row.get(0),
        waiting: row.get::<_, i64>(1) as u64,
        refused: row.get::<_, i64>(2) as u64,
    }))
}

/// What a person should know of it.
pub(super) fn advice(call: &mut Call<'_>) -> Result<Vec<String>> {
    let status = status(call)?;
    let mut lines = Vec::new();
    if status.lag_s > LATE_S {
        let (rows, lag_s) = (status.waiting, status.lag_s);
        let blocker = blocked(call.one(BLOCKER, &[])?.as_ref());
        lines.push(format!(
            "outbox: {rows} rows wait, the oldest for {lag_s:.0} s: no process with `broker` and this store runs, the \
             log takes none, or {blocker}"
        ));
    }
    if status.refused > 0 {
        lines.push(format!(
            "outbox: the log has refused {} rows; chaton.outbox_refused has them, and why",
            status.refused
        ));
    }
    Ok(lines)
}
