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
pub(super) const STEPS: &[&str] = &["
CREATE SEQUENCE chaton.back;
CREATE SEQUENCE chaton.front;
CREATE TABLE chaton.jobs(id bigint PRIMARY KEY DEFAULT nextval('chaton.back'), place smallint NOT NULL,
    priority smallint NOT NULL DEFAULT 0, queue text COLLATE \"C\" NOT NULL, fair_key text COLLATE \"C\",
    at float8, owner text COLLATE \"C\", ticket bigint, payload bytea NOT NULL)
    WITH (fillfactor=80, autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=10000,
    autovacuum_vacuum_cost_delay=0, autovacuum_analyze_scale_factor=0, autovacuum_analyze_threshold=100000,
    toast.autovacuum_vacuum_scale_factor=0, toast.autovacuum_vacuum_threshold=10000);
CREATE INDEX jobs_waiting ON chaton.jobs(queue, priority, id) WHERE place=0;
CREATE INDEX jobs_in_flight ON chaton.jobs(owner, ticket) WHERE place=1;
CREATE INDEX jobs_in_sets ON chaton.jobs(place, at, id) WHERE place>=2;
CREATE TABLE chaton.queues(name text COLLATE \"C\" PRIMARY KEY, paused boolean NOT NULL DEFAULT false);
CREATE TABLE chaton.owners(identity text COLLATE \"C\" PRIMARY KEY, place text,
    beat_at timestamptz NOT NULL DEFAULT clock_timestamp(), reported_at float8, info text NOT NULL DEFAULT '',
    busy bigint NOT NULL DEFAULT 0, quiet boolean NOT NULL DEFAULT false, rss_kb bigint NOT NULL DEFAULT 0)
    WITH (fillfactor=50, autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=1000);
CREATE TABLE chaton.work(owner text COLLATE \"C\" NOT NULL, tid text NOT NULL, queue text NOT NULL,
    payload bytea NOT NULL, run_at bigint NOT NULL, PRIMARY KEY(owner, tid))
    WITH (autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=1000);
CREATE TABLE chaton.signals(id bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY, identity text NOT NULL,
    name text NOT NULL, until float8 NOT NULL);
CREATE TABLE chaton.counters(name text PRIMARY KEY, value bigint NOT NULL)
    WITH (fillfactor=50, autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=1000);
CREATE TABLE chaton.locks(key text COLLATE \"C\" PRIMARY KEY, jid text NOT NULL, until float8 NOT NULL);
CREATE TABLE chaton.slots(key text COLLATE \"C\", holder text, until float8 NOT NULL, PRIMARY KEY(key, holder));
CREATE TABLE chaton.starts(key text COLLATE \"C\", at float8, holder text, until float8 NOT NULL,
    PRIMARY KEY(key, at, holder));
CREATE TABLE chaton.buckets(key text COLLATE \"C\" PRIMARY KEY, level float8 NOT NULL, at float8 NOT NULL,
    until float8 NOT NULL);
CREATE TABLE chaton.batches(bid text COLLATE \"C\" PRIMARY KEY, description text NOT NULL, parent text,
    created_at float8 NOT NULL, until float8 NOT NULL, closed boolean NOT NULL DEFAULT false,
    owner text, opened_at float8 NOT NULL, total bigint NOT NULL DEFAULT 0, pending bigint NOT NULL DEFAULT 0,
    children bigint NOT NULL DEFAULT 0, running bigint NOT NULL DEFAULT 0, complete boolean NOT NULL DEFAULT false,
    success boolean NOT NULL DEFAULT false, dead boolean NOT NULL DEFAULT false) WITH (fillfactor=50);
CREATE INDEX batches_open ON chaton.batches(opened_at) WHERE owner IS NOT NULL;
CREATE TABLE chaton.batch_jobs(bid text COLLATE \"C\", jid text COLLATE \"C\", failed boolean NOT NULL DEFAULT false,
    PRIMARY KEY(bid, jid));
CREATE INDEX batch_failures ON chaton.batch_jobs(bid, jid) WHERE failed;
CREATE TABLE chaton.batch_callbacks(bid text COLLATE \"C\", event text, number bigint, queue text NOT NULL,
    payload bytea NOT NULL, PRIMARY KEY(bid, event, number));
CREATE TABLE chaton.hashes(key text COLLATE \"C\", field text COLLATE \"C\", value bytea NOT NULL,
    until float8 NOT NULL, PRIMARY KEY(key, field));
CREATE TABLE chaton.ticks(key text COLLATE \"C\" PRIMARY KEY, until float8 NOT NULL);
CREATE TABLE chaton.cancels(jid text COLLATE \"C\" PRIMARY KEY, until float8 NOT NULL);
CREATE TABLE chaton.lines(name text COLLATE \"C\" PRIMARY KEY, max bigint NOT NULL, span float8 NOT NULL,
    look_at float8 NOT NULL);
CREATE INDEX lines_by_look ON chaton.lines(look_at);
CREATE TABLE chaton.line_jobs(name text COLLATE \"C\", jid text COLLATE \"C\", place float8 NOT NULL,
    entry bigint NOT NULL, at float8 NOT NULL, queue text NOT NULL, PRIMARY KEY(name, jid));
CREATE INDEX line_jobs_by_place ON chaton.line_jobs(name, place, jid);
", "
ALTER TABLE chaton.jobs ADD COLUMN IF NOT EXISTS ended boolean NOT NULL DEFAULT false;
", "
CREATE TABLE chaton.outbox(id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    xid xid8 NOT NULL DEFAULT pg_current_xact_id(), at timestamptz NOT NULL DEFAULT clock_timestamp(),
    uuid uuid NOT NULL DEFAULT gen_random_uuid(), topic text COLLATE \"C\" NOT NULL, partition integer,
    key bytea, value bytea, headers bytea[] NOT NULL DEFAULT '{}', timestamp_ms bigint)
    WITH (autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=10000, autovacuum_vacuum_cost_delay=0,
    toast.autovacuum_vacuum_scale_factor=0, toast.autovacuum_vacuum_threshold=10000);
CREATE TABLE chaton.outbox_refused(LIKE chaton.outbox, why text NOT NULL,
    refused_at timestamptz NOT NULL DEFAULT clock_timestamp());
"];

/// Makes the schema and its row of the version, under a lock that other processes wait for.
pub(super) const BEGIN: &str = "
SELECT pg_advisory_xact_lock(1128812110, 0);
SET LOCAL lock_timeout='5s';
CREATE SCHEMA IF NOT EXISTS chaton;
CREATE TABLE IF NOT EXISTS chaton.version(number bigint NOT NULL);
INSERT INTO chaton.version(number) SELECT 0 WHERE NOT EXISTS(SELECT 1 FROM chaton.version);
";
