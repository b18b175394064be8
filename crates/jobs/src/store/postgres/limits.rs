//! Locks of unique jobs, and those that the changes of limits and batches take.
//!
//! Limits with their lines, and batches, are changed by one transaction at a time: the transaction takes the lock of the
//! store for one or the other in its first statement, and holds it for a few short statements.

use crate::outcome::{Ack, Outcome};
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
        let sql = format!("SELECT jid FROM chaton.locks WHERE key=$1 AND until>{NOW}");
        let holder: Option<String> = call.value(&sql, args![lock.key])?;
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

/// Releases slots of these keys that one of the holders has.
pub(super) fn release(call: &mut Call<'_>, keys: &[String], holders: &[String]) -> Result<()> {
    call.exec("DELETE FROM chaton.slots WHERE key=ANY($1) AND holder=ANY($2)", args![keys, holders])
}
