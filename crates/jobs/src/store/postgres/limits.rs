//! Locks of unique jobs, and what of each limit is used.
//!
//! Limits with their lines, and batches, are changed by one transaction at a time: the transaction takes the lock of the
//! store for one or the other in its first statement, and holds it for a few short statements.

use crate::limit::{Limit, LimitRule};
use crate::outcome::{Ack, Outcome};
use crate::store::line::{Taken, CALL_MAX, SKEW_S};
use crate::store::types::NewLock;

use super::connection::{args, Call, NOW};
use super::errors::Result;

/// The locks of the store (`chaton` as a number of 32 bits begins the key): limits before batches.
const LIMITS: i32 = 1;
const BATCHES: i32 = 2;
/// How often a push looks whether the holder of a lock is known: another push that is about to commit takes it, or an
/// application's transaction that may last.
const LOOKS: u32 = 50;
/// Time between two looks.
const LOOK_PAUSE: std::time::Duration = std::time::Duration::from_millis(2);

fn take(call: &mut Call<'_>, locks: &[i32]) -> Result<()> {
    if locks.is_empty() {
        return Ok(());
    }
    call.exec("SELECT pg_advisory_xact_lock(1128812110, lock) FROM unnest($1) lock", args![locks])
}

/// Makes these acknowledgements wait for others that change limits or batches, too.
pub(super) fn serialize(call: &mut Call<'_>, acks: &[Ack]) -> Result<()> {
    let effects = || acks.iter().filter_map(|ack| ack.effects.as_ref());
    let has_limits = effects().any(|effects| !effects.release.is_empty())
        || acks.iter().any(|ack| matches!(ack.outcome, Outcome::Wait(_)));
    let has_batches = effects().any(|effects| effects.batch.is_some());
    let locks = [(has_limits, LIMITS), (has_batches, BATCHES)];
    let locks: Vec<i32> =
        locks.iter().filter(|(wanted, _)| *wanted).map(|(_, lock)| *lock).collect();
    take(call, &locks)
}

pub(super) fn serialize_limits(call: &mut Call<'_>) -> Result<()> {
    take(call, &[LIMITS])
}

pub(super) fn serialize_batches(call: &mut Call<'_>) -> Result<()> {
    take(call, &[BATCHES])
}

/// The part of a statement that takes a lock: `$1` key, `$2` jid, `$3` seconds. It waits for no other transaction.
pub(super) fn lock_part() -> String {
    format!(
        "WITH free AS MATERIALIZED (SELECT pg_try_advisory_xact_lock(hashtextextended($1, 1128812110)) AS it),
         taken AS (INSERT INTO chaton.locks AS l (key, jid, until) SELECT $1, $2, {NOW} + $3 FROM free WHERE it
             ON CONFLICT (key) DO UPDATE SET jid=excluded.jid, until=excluded.until
             WHERE l.jid=excluded.jid OR l.until<={NOW} RETURNING 1)"
    )
}

/// Takes a lock; returns the holder when it is held by another job, an empty one when that is not known yet.
pub(super) fn lock(call: &mut Call<'_>, lock: &NewLock<'_>) -> Result<Option<String>> {
    let ttl_s = lock.ttl.as_secs_f64();
    let mut looks = 0;
    loop {
        let row = call.one(
            &format!("{} SELECT (SELECT it FROM free), EXISTS(SELECT 1 FROM taken)", lock_part()),
            args![lock.key, lock.jid, ttl_s],
        )?;
        let (free, taken) = row.map_or((false, false), |row| (row.get(0), row.get(1)));
        if taken {
            return Ok(None);
        }
        let holder = call.one(
            &format!("SELECT jid FROM chaton.locks WHERE key=$1 AND until>{NOW}"),
            args![lock.key],
        )?;
        let holder: Option<String> = holder.map(|row| row.get(0));
        looks += 1;
        match holder {
            Some(holder) if holder != lock.jid => return Ok(Some(holder)),
            // Its holder has given it up meanwhile, or is about to commit.
            _ if looks < LOOKS => {
                if !free {
                    std::thread::sleep(LOOK_PAUSE);
                }
            }
            _ => return Ok(Some(String::new())),
        }
    }
}

/// Releases locks that these jids hold.
pub(super) fn unlock(call: &mut Call<'_>, keys: &[&str], jids: &[&str]) -> Result<()> {
    call.exec(
        "DELETE FROM chaton.locks l USING unnest($1, $2) AS u(key, jid) WHERE l.key=u.key AND l.jid=u.jid",
        args![keys, jids],
    )
}

/// The name of the holder of a slot.
pub(super) fn holder(owner: &str, ticket: u64) -> String {
    format!("{owner}|{ticket}")
}

/// Releases slots of these keys that one of the holders has.
pub(super) fn release(call: &mut Call<'_>, keys: &[String], holders: &[String]) -> Result<()> {
    call.exec("DELETE FROM chaton.slots WHERE key=ANY($1) AND holder=ANY($2)", args![keys, holders])
}

/// Gives a slot.
pub(super) fn hold(call: &mut Call<'_>, key: &str, holder: &str, until_s: f64) -> Result<()> {
    call.exec(
        "INSERT INTO chaton.slots(key, holder, until) VALUES($1, $2, $3)
         ON CONFLICT (key, holder) DO UPDATE SET until=excluded.until",
        args![key, holder, until_s],
    )
}

/// How many slots are held, and when the first hold ends.
pub(super) fn held(call: &mut Call<'_>, key: &str, now_s: f64) -> Result<(usize, Option<f64>)> {
    let row = call.one(
        "WITH over AS (DELETE FROM chaton.slots WHERE key=$1 AND until<=$2)
         SELECT count(*), min(until) FROM chaton.slots WHERE key=$1 AND until>$2",
        args![key, now_s],
    )?;
    Ok(row.map_or((0, None), |row| (row.get::<_, i64>(0) as usize, row.get(1))))
}

/// What was taken from a rate later than now counts as taken now: the clock was set back.
pub(super) fn set_back(call: &mut Call<'_>, line: &str, now_s: f64) -> Result<()> {
    let (table, key) = match line.split_once(':') {
        Some(("window", key)) => ("starts", key),
        Some(("bucket", key)) => ("buckets", key),
        _ => return Ok(()),
    };
    call.exec(
        &format!("UPDATE chaton.{table} SET at=$2 WHERE key=$1 AND at>$2+$3"),
        args![key, now_s, SKEW_S],
    )
}

/// What was taken from a rate.
pub(super) fn taken(call: &mut Call<'_>, limit: &Limit, now_s: f64) -> Result<Taken> {
    let (key, (max, span_s)) = (limit.key.as_str(), limit.rule.size());
    if let LimitRule::Bucket { .. } = limit.rule {
        return Ok(Taken::Bucket(level(call, key, max, span_s, now_s)?.0));
    }
    call.rows("DELETE FROM chaton.starts WHERE key=$1 AND at<=$2", args![key, now_s - span_s])?;
    let row = call.one(
        "SELECT count(*), ARRAY(SELECT at FROM chaton.starts WHERE key=$1 ORDER BY at LIMIT $3
         OFFSET (SELECT greatest(count(*) - $2, 0) FROM chaton.starts WHERE key=$1))
         FROM chaton.starts WHERE key=$1",
        args![key, i64::from(max), CALL_MAX as i64],
    )?;
    Ok(row.map_or(Taken::Window(0, vec![]), |row| {
        Taken::Window(row.get::<_, i64>(0) as usize, row.get(1))
    }))
}

/// Level of a bucket, and the latest time it was asked with (clocks differ).
fn level(call: &mut Call<'_>, key: &str, max: u32, per_s: f64, now_s: f64) -> Result<(f64, f64)> {
    let row = call.one("SELECT level, at FROM chaton.buckets WHERE key=$1", args![key])?;
    let full = f64::from(max);
    Ok(row.map_or((full, now_s), |row| {
        let (level, at): (f64, f64) = (row.get(0), row.get(1));
        let since_s = (now_s - at).max(0.0);
        (full.min(level + since_s * full / per_s), at.max(now_s))
    }))
}

/// Uses a limit up by one.
pub(super) fn use_up(call: &mut Call<'_>, limit: &Limit, holder: &str, now_s: f64) -> Result<()> {
    let key = limit.key.as_str();
    match limit.rule {
        LimitRule::Concurrent { hold_s, .. } => return hold(call, key, holder, now_s + hold_s),
        LimitRule::Window { per_s, .. } => call.rows(
            "INSERT INTO chaton.starts(key, at, holder, until) VALUES($1, $2, $3, $4)
             ON CONFLICT (key, at, holder) DO UPDATE SET until=excluded.until",
            args![key, now_s, holder, now_s + per_s],
        )?,
        LimitRule::Bucket { max, per_s } => {
            let (level, at) = level(call, key, max, per_s, now_s)?;
            let level = (level - 1.0).max(0.0);
            call.rows(
                "INSERT INTO chaton.buckets(key, level, at, until) VALUES($1, $2, $3, $4)
                 ON CONFLICT (key) DO UPDATE SET level=excluded.level, at=excluded.at, until=excluded.until",
                args![key, level, at, at + per_s],
            )?
        }
    };
    Ok(())
}
