//! What a person should know about the server.

use super::connection::{args, Call};
use super::errors::Result;
use super::outbox;
use crate::store::error::{StoreError, StoreErrorKind};

/// The oldest supported version, as the server numbers it.
const VERSION_MIN: i32 = 150_000;
/// A transaction that is older (s) keeps the rows of so many finished jobs from being removed that claims get slower.
pub(super) const SNAPSHOT_MAX_S: f64 = 60.0;
/// Connections that a server should allow: those of a few processes, and of the application.
const CONNECTIONS_MIN: i32 = 50;

/// Missing rights, settings that hurt, signs of a bouncer.
pub(super) fn advice(call: &mut Call<'_>) -> Result<Vec<String>> {
    let row = call.one(
        "SELECT current_setting('server_version_num')::int, current_setting('server_version'),
         current_setting('fsync')::bool AND current_setting('full_page_writes')::bool,
         current_setting('synchronous_commit'), current_setting('autovacuum')::bool,
         current_setting('max_connections')::int,
         ARRAY(SELECT format('%s on %s', r, c.oid::regclass) FROM pg_class c JOIN pg_namespace n ON n.oid=c.relnamespace,
             unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) r WHERE n.nspname='chaton' AND c.relkind='r'
             AND c.relname<>'version' AND NOT has_table_privilege(c.oid, r) ORDER BY 1),
         ARRAY(SELECT format('USAGE on %s', c.oid::regclass) FROM pg_class c JOIN pg_namespace n ON n.oid=c.relnamespace
             WHERE n.nspname='chaton' AND CASE WHEN c.relkind='S' THEN NOT has_sequence_privilege(c.oid, 'USAGE') END ORDER BY 1)",
        &[],
    )?;
    let Some(row) = row else { return Ok(vec![]) };
    let mut lines = Vec::new();
    let (version, shown): (i32, String) = (row.get(0), row.get(1));
    if version < VERSION_MIN {
        lines.push(format!("PostgreSQL {shown} is too old: use 15 or newer"));
    }
    if !row.get::<_, bool>(2) {
        lines.push(
            "fsync or full_page_writes is off: a power failure may damage the database".into(),
        );
    }
    if row.get::<_, &str>(3) == "off" {
        lines.push("synchronous_commit is off: a crash of the server loses the last jobs".into());
    }
    if !row.get::<_, bool>(4) {
        lines.push("autovacuum is off: claims get slower with each job that has ended".into());
    }
    let connections: i32 = row.get(5);
    if connections < CONNECTIONS_MIN {
        lines.push(format!(
            "max_connections is {connections}: an idle process holds one, a busy one up to 17"
        ));
    }
    let (tables, sequences): (Vec<String>, Vec<String>) = (row.get(6), row.get(7));
    let missing = [tables, sequences].concat();
    if !missing.is_empty() {
        lines.push(format!("rights are missing: GRANT {}", missing.join(", ")));
    }
    lines.extend(snapshot(call, SNAPSHOT_MAX_S)?);
    lines.extend(outbox::advice(call)?);
    Ok(lines)
}

/// A transaction that has been open for too long.
pub(super) fn snapshot(call: &mut Call<'_>, max_s: f64) -> Result<Option<String>> {
    let row = call.one(
        "SELECT pid, coalesce(application_name, ''), extract(epoch FROM clock_timestamp()-xact_start)::bigint
         FROM pg_stat_activity WHERE backend_xmin IS NOT NULL AND datname=current_database()
         AND xact_start<clock_timestamp()-make_interval(secs => $1) ORDER BY xact_start LIMIT 1",
        args![max_s],
    )?;
    Ok(row.map(|row| {
        let (pid, name, age_s): (i32, String, i64) = (row.get(0), row.get(1), row.get(2));
        format!(
            "PostgreSQL: the transaction of process {pid} ({name}) is open for {age_s} s, so that finished jobs \
             cannot be removed and claims get slower; end it, or set idle_in_transaction_session_timeout"
        )
    }))
}

/// A transaction that reads the tables, so that they cannot be brought up to date.
pub(super) fn reader(call: &mut Call<'_>) -> Result<Option<StoreError>> {
    let row = call.one(
        "SELECT a.pid, coalesce(application_name, ''), extract(epoch FROM clock_timestamp()-xact_start)::bigint
         FROM pg_locks l JOIN pg_class c ON c.oid=l.relation AND l.database=(SELECT oid FROM pg_database
         WHERE datname=current_database()) JOIN pg_stat_activity a ON a.pid=l.pid
         WHERE c.relnamespace='chaton'::regnamespace AND granted AND a.pid<>pg_backend_pid()
         ORDER BY xact_start LIMIT 1",
        &[],
    )?;
    Ok(row.map(|row| {
        let (pid, name, age_s): (i32, String, i64) = (row.get(0), row.get(1), row.get(2));
        StoreError::new(
            StoreErrorKind::Busy,
            format!(
                "PostgreSQL: the transaction of process {pid} ({name}), open for {age_s} s, keeps the tables from being \
                 brought up to date; end it, or wait: processes of the release before work on"
            ),
        )
    }))
}
