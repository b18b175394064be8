//! The clock by which batches grow old: it goes on by the time since boot, in which a set wall clock makes no step. Else a
//! step forwards removed what is new, and one back kept what is old.

use chaton_core::clock::{boot_id, boot_ns};
use chaton_embedded::Transaction;
use rusqlite::{params, OptionalExtension};

use super::log_dir::{Done, OFFSET_BITS};

/// Milliseconds since 1970 as of the first write since boot. They are not before any batch, so that a wall clock that a boot
/// has set back makes no step either; one that a boot has set forwards cannot be told from a machine that was off.
pub(super) fn now_ms(tx: &Transaction<'_>, wall_ms: i64) -> Done<i64> {
    let boot_ms = (boot_ns() / 1_000_000) as i64;
    let known = "SELECT ahead_ms FROM record_clock WHERE boot=?1";
    let known = tx.conn.prepare_cached(known)?.query_row([boot_id()], |row| row.get::<_, i64>(0));
    if let Some(ahead_ms) = known.optional()? {
        return Ok(boot_ms + ahead_ms);
    }
    let newest = format!(
        "SELECT max((SELECT written_ms FROM record_batches WHERE id >= p.id << {OFFSET_BITS} AND
         id < (p.id + 1) << {OFFSET_BITS} ORDER BY id DESC LIMIT 1)) FROM partitions p"
    );
    let newest_ms = tx.conn.query_row(&newest, [], |row| row.get::<_, Option<i64>>(0))?;
    let now_ms = wall_ms.max(newest_ms.unwrap_or(wall_ms));
    tx.conn.execute("DELETE FROM record_clock", [])?;
    tx.conn
        .execute("INSERT INTO record_clock VALUES(?1, ?2)", params![boot_id(), now_ms - boot_ms])?;
    Ok(now_ms)
}
