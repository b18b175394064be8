CREATE TABLE chaton.outbox(id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    xid xid8 NOT NULL DEFAULT pg_current_xact_id(), at timestamptz NOT NULL DEFAULT clock_timestamp(),
    uuid uuid NOT NULL DEFAULT gen_random_uuid(), topic text COLLATE "C" NOT NULL, partition integer,
    key bytea, value bytea, headers bytea[] NOT NULL DEFAULT '{}', timestamp_ms bigint)
    WITH (autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=10000, autovacuum_vacuum_cost_delay=0,
    toast.autovacuum_vacuum_scale_factor=0, toast.autovacuum_vacuum_threshold=10000);
CREATE TABLE chaton.outbox_refused(LIKE chaton.outbox, why text NOT NULL,
    refused_at timestamptz NOT NULL DEFAULT clock_timestamp());
