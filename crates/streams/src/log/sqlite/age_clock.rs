//! The clock by which batches grow old: it goes on by the time since boot, in which a set wall clock makes no step. Else a
//! step forwards removed what is new, and one back kept what is old.

use chaton_core::clock::{boot_id, boot_ns};
use chaton_embedded::Transaction;
use rusqlite::{params, OptionalExtension, Row};

use super::log_dir::{Done, OFFSET_BITS};

/// How far the wall clock may drift until it is noted how far it is ahead: a write for each drift would be a page more.
const STEP_MS: i64 = 60_000;

/// Milliseconds since 1970 as of the first write since boot. They are not before any batch, and go on behind the wall clock
/// as far as they were: a wall clock that is wrong at boot, or was and was set then, makes no step either. One that a boot
/// has set forwards cannot be told from a machine that was off.
pub(super) fn now_ms(tx: &Transaction<'_>, wall_ms: i64) -> Done<i64> {
    let boot_ms = (boot_ns() / 1_000_000) as i64;
    let mut select =
        tx.conn.prepare_cached("SELECT boot=?1, ahead_ms, behind_ms FROM log_clock")?;
    let row = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
    let known: Option<(bool, i64, i64)> = select.query_row([boot_id()], row).optional()?;
    let (now_ms, behind_ms) = match known {
        Some((true, ahead_ms, behind_ms)) => (boot_ms + ahead_ms, behind_ms),
        _ => {
            let goes_on_ms = wall_ms - known.map_or(0, |(_, _, behind_ms)| behind_ms);
            (newest_ms(tx)?.map_or(goes_on_ms, |newest_ms| newest_ms.max(goes_on_ms)), -1)
        }
    };
    let is_behind_ms = (wall_ms - now_ms).max(0);
    if behind_ms < 0 || (is_behind_ms - behind_ms).abs() > STEP_MS {
        tx.conn.execute("DELETE FROM log_clock", [])?;
        let row = params![boot_id(), now_ms - boot_ms, is_behind_ms];
        tx.conn.execute("INSERT INTO log_clock VALUES(?1, ?2, ?3)", row)?;
    }
    Ok(now_ms)
}

/// When the last batch was written.
fn newest_ms(tx: &Transaction<'_>) -> Done<Option<i64>> {
    let newest = format!(
        "SELECT max((SELECT written_ms FROM record_batches WHERE id >= p.id << {OFFSET_BITS} AND
         id < (p.id + 1) << {OFFSET_BITS} ORDER BY id DESC LIMIT 1)) FROM partitions p"
    );
    Ok(tx.conn.query_row(&newest, [], |row| row.get(0))?)
}
