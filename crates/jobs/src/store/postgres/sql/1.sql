CREATE SEQUENCE chaton.back;
CREATE SEQUENCE chaton.front;
CREATE TABLE chaton.jobs(id bigint PRIMARY KEY DEFAULT nextval('chaton.back'), place smallint NOT NULL,
    priority smallint NOT NULL DEFAULT 0, queue text COLLATE "C" NOT NULL, fair_key text COLLATE "C",
    at float8, owner text COLLATE "C", ticket bigint, payload bytea NOT NULL)
    WITH (fillfactor=80, autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=10000,
    autovacuum_vacuum_cost_delay=0, autovacuum_analyze_scale_factor=0, autovacuum_analyze_threshold=100000,
    toast.autovacuum_vacuum_scale_factor=0, toast.autovacuum_vacuum_threshold=10000);
CREATE INDEX jobs_waiting ON chaton.jobs(queue, priority, id) WHERE place=0;
CREATE INDEX jobs_in_flight ON chaton.jobs(owner, ticket) WHERE place=1;
CREATE INDEX jobs_in_sets ON chaton.jobs(place, at, id) WHERE place>=2;
CREATE TABLE chaton.queues(name text COLLATE "C" PRIMARY KEY, paused boolean NOT NULL DEFAULT false);
CREATE TABLE chaton.owners(identity text COLLATE "C" PRIMARY KEY, place text,
    beat_at timestamptz NOT NULL DEFAULT clock_timestamp(), reported_at float8, info text NOT NULL DEFAULT '',
    busy bigint NOT NULL DEFAULT 0, quiet boolean NOT NULL DEFAULT false, rss_kb bigint NOT NULL DEFAULT 0)
    WITH (fillfactor=50, autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=1000);
CREATE TABLE chaton.work(owner text COLLATE "C" NOT NULL, tid text NOT NULL, queue text NOT NULL,
    payload bytea NOT NULL, run_at bigint NOT NULL, PRIMARY KEY(owner, tid))
    WITH (autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=1000);
CREATE TABLE chaton.signals(id bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY, identity text NOT NULL,
    name text NOT NULL, until float8 NOT NULL);
CREATE TABLE chaton.counters(name text PRIMARY KEY, value bigint NOT NULL)
    WITH (fillfactor=50, autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=1000);
CREATE TABLE chaton.locks(key text COLLATE "C" PRIMARY KEY, jid text NOT NULL, until float8 NOT NULL);
CREATE TABLE chaton.slots(key text COLLATE "C", holder text, until float8 NOT NULL, PRIMARY KEY(key, holder));
CREATE TABLE chaton.starts(key text COLLATE "C", at float8, holder text, until float8 NOT NULL,
    PRIMARY KEY(key, at, holder));
CREATE TABLE chaton.buckets(key text COLLATE "C" PRIMARY KEY, level float8 NOT NULL, at float8 NOT NULL,
    until float8 NOT NULL);
CREATE TABLE chaton.batches(bid text COLLATE "C" PRIMARY KEY, description text NOT NULL, parent text,
    created_at float8 NOT NULL, until float8 NOT NULL, closed boolean NOT NULL DEFAULT false,
    owner text, opened_at float8 NOT NULL, total bigint NOT NULL DEFAULT 0, pending bigint NOT NULL DEFAULT 0,
    children bigint NOT NULL DEFAULT 0, running bigint NOT NULL DEFAULT 0, complete boolean NOT NULL DEFAULT false,
    success boolean NOT NULL DEFAULT false, dead boolean NOT NULL DEFAULT false) WITH (fillfactor=50);
CREATE INDEX batches_open ON chaton.batches(opened_at) WHERE owner IS NOT NULL;
CREATE TABLE chaton.batch_jobs(bid text COLLATE "C", jid text COLLATE "C", failed boolean NOT NULL DEFAULT false,
    PRIMARY KEY(bid, jid));
CREATE INDEX batch_failures ON chaton.batch_jobs(bid, jid) WHERE failed;
CREATE TABLE chaton.batch_callbacks(bid text COLLATE "C", event text, number bigint, queue text NOT NULL,
    payload bytea NOT NULL, PRIMARY KEY(bid, event, number));
CREATE TABLE chaton.hashes(key text COLLATE "C", field text COLLATE "C", value bytea NOT NULL,
    until float8 NOT NULL, PRIMARY KEY(key, field));
CREATE TABLE chaton.ticks(key text COLLATE "C" PRIMARY KEY, until float8 NOT NULL);
CREATE TABLE chaton.cancels(jid text COLLATE "C" PRIMARY KEY, until float8 NOT NULL);
CREATE TABLE chaton.lines(name text COLLATE "C" PRIMARY KEY, max bigint NOT NULL, span float8 NOT NULL,
    look_at float8 NOT NULL);
CREATE INDEX lines_by_look ON chaton.lines(look_at);
CREATE TABLE chaton.line_jobs(name text COLLATE "C", jid text COLLATE "C", place float8 NOT NULL,
    entry bigint NOT NULL, at float8 NOT NULL, queue text NOT NULL, PRIMARY KEY(name, jid));
CREATE INDEX line_jobs_by_place ON chaton.line_jobs(name, place, jid);
