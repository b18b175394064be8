//! Jobs that a transaction of the application stores, on its own connection: statements with their values in them.
//! Values are written out because a connection behind a bouncer may have no parameters, and drivers pass them in
//! different ways.

use chaton_core::outbox::OwnedRecord;

use super::connection::{args, NOW};
use super::constants::{hexadecimal, text};
use super::limits::lock_part;
use super::outbox;
use super::rows::{QUEUE, SCHEDULED};
use super::store::PostgresStore;
use crate::store::error::StoreError;
use crate::store::payload::priority_of;
use crate::store::traits::{OwnTransactions, Result};
use crate::store::types::{NewJob, NewLock};

/// Tells the database, until its server is started again, and whether who asks may store jobs in it.
const DATABASE: &str =
    "SELECT concat_ws('/', d.oid, extract(epoch FROM pg_postmaster_start_time()), c.oid)
    FROM pg_database d, pg_class c JOIN pg_namespace n ON n.oid=c.relnamespace
    WHERE d.datname=current_database() AND n.nspname='chaton' AND c.relname='jobs'
    AND has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, 'INSERT')";

const INSERT_VALUES: &str = "INSERT INTO chaton.jobs(place, queue, at, payload, priority) VALUES";

/// Marks a job as done: its row is still needed, for what the job's end releases.
const END: &str =
    "UPDATE chaton.jobs SET ended=true WHERE place=1 AND owner=$1 AND ticket=$2 RETURNING 1";

impl OwnTransactions for PostgresStore {
    fn database(&mut self) -> Result<(&'static str, Option<String>)> {
        let row = self.single(|call| call.one(DATABASE, args![]))?;
        Ok((DATABASE, row.map(|row| row.get(0))))
    }

    fn push(&mut self, jobs: &[NewJob<'_>]) -> Result<String> {
        let mut queues: Vec<&str> =
            jobs.iter().filter(|job| job.at.is_none()).map(|job| job.queue).collect();
        queues.sort_unstable();
        queues.dedup();
        self.single(|call| {
            let sql = "INSERT INTO chaton.queues(name) SELECT unnest($1) ON CONFLICT DO NOTHING";
            call.exec(sql, args![queues])
        })?;
        self.known_queues().lock().extend(queues.into_iter().map(str::to_string));
        Ok(insert(jobs))
    }

    fn push_known(&self, jobs: &[NewJob<'_>]) -> Option<String> {
        let known = self.known_queues().lock();
        jobs.iter().all(|job| job.at.is_some() || known.contains(job.queue)).then(|| insert(jobs))
    }

    fn lock(&self, lock: &NewLock<'_>) -> String {
        let sql = format!(
            "{} SELECT CASE WHEN EXISTS(SELECT 1 FROM taken) THEN NULL ELSE coalesce(
             (SELECT jid FROM chaton.locks WHERE key=$1 AND until>{NOW}), '') END AS holder",
            lock_part()
        );
        filled(&sql, &[text(lock.key), text(lock.jid), lock.ttl.as_secs_f64().to_string()])
    }

    fn end(&self, owner: &str, ticket: u64) -> String {
        filled(END, &[text(owner), ticket.to_string()])
    }

    fn has_ended(&mut self, owner: &str, ticket: u64) -> Result<Option<bool>> {
        let row = self.single(|call| {
            call.one(
                "SELECT ended FROM chaton.jobs WHERE place=1 AND owner=$1 AND ticket=$2 FOR UPDATE",
                args![owner, ticket as i64],
            )
        })?;
        Ok(row.map(|row| row.get(0)))
    }

    fn outbox(&self, records: &[OwnedRecord]) -> Result<String> {
        if self.listens() {
            return Ok(outbox::insert(records));
        }
        Err(StoreError::refused(
            "outbox: true needs a connection that no bouncer shares: name the server itself in jobs { listen \
             \"postgres://…\" } instead of :off",
        ))
    }

    fn announce(&mut self, queues: &[&str], outbox: bool) -> Result<()> {
        self.single(|call| {
            queues.iter().for_each(|queue| call.tell(queue));
            if outbox {
                call.tell_outbox();
            }
            call.exec("SELECT 1", args![])
        })
    }
}

/// Values cost less time to plan than arrays, of which the store's own statement is prepared.
fn insert(jobs: &[NewJob<'_>]) -> String {
    let values = jobs.iter().map(|job| {
        let place = if job.at.is_some() { SCHEDULED } else { QUEUE };
        let at = job.at.map_or_else(|| "NULL".into(), |at| at.to_string());
        let (queue, payload) = (text(job.queue), hexadecimal(job.payload));
        format!("({place},{queue},{at},{payload},{})", priority_of(job.payload))
    });
    let values: Vec<String> = values.collect();
    format!("{INSERT_VALUES} {}", values.join(","))
}

/// The statement with values in the places of `$1`, `$2`, …
fn filled(sql: &str, values: &[String]) -> String {
    let mut parts = sql.split('$');
    let mut whole = parts.next().unwrap_or_default().to_string();
    for part in parts {
        let digits = part.bytes().take_while(u8::is_ascii_digit).count();
        let value = part[..digits].parse::<usize>().ok().and_then(|number| values.get(number - 1));
        whole.push_str(value.map_or("", String::as_str));
        whole.push_str(&part[digits..]);
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_stand_in_their_places_whatever_they_contain() {
        let values = [text("it's \\ $2"), text("b")];
        assert_eq!(filled("f($1, $2, $1)", &values), "f(E'it''s \\\\ $2', E'b', E'it''s \\\\ $2')");
        assert_eq!(hexadecimal(b"a'\x00"), "E'\\\\x612700'");
    }
}
