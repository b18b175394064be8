SELECT pg_advisory_xact_lock(1128812110, 0);
SET LOCAL lock_timeout='5s';
CREATE SCHEMA IF NOT EXISTS chaton;
CREATE TABLE IF NOT EXISTS chaton.version(number bigint NOT NULL);
INSERT INTO chaton.version(number) SELECT 0 WHERE NOT EXISTS(SELECT 1 FROM chaton.version);
