//! The tables, in the schema `chaton`, and how an older version of them becomes this one.
//!
//! A job is one row from its push to its end. `place` says where it is (0 queue, 1 in flight, 2 schedule, 3 retry
//! set, 4 dead set), and a partial index for each kind of place holds its order. Whoever changes the tables raises
//! [`VERSION`] and adds a step to [`STEPS`] that only adds: processes of the release before use the same tables.

/// The version that this release writes.
pub(super) const VERSION: i64 = STEPS.len() as i64;

/// What makes each version from the one before.
///
/// `back` and `front` number the jobs of queues and sets: those put in front of all others get negative numbers.
/// `fair_key` is not used yet. `ended` is set by the transaction of the application that did the job. `outbox` has records for a log, until it has
/// them: `xid` is the transaction that wrote the row, `uuid` tells the record from all others, `headers` are names and
/// values by turns. A finished job is deleted, so dead rows are what grows: a page keeps room for the update
/// of a claim (`fillfactor`), and autovacuum begins after a fixed number of them instead of a share, without pauses.
pub(super) const STEPS: &[&str] =
    &[include_str!("sql/1.sql"), include_str!("sql/2.sql"), include_str!("sql/3.sql")];

/// Makes the schema and its row of the version, under a lock that other processes wait for.
pub(super) const BEGIN: &str = include_str!("sql/begin.sql");
