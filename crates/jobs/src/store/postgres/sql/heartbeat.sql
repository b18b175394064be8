WITH r AS MATERIALIZED (SELECT * FROM json_to_recordset($1::json) AS u(identity text, place text, info text,
    busy bigint, quiet boolean, rss_kb bigint, work json, processed bigint, failed bigint, now_s float8)),
job AS MATERIALIZED (SELECT DISTINCT ON (identity, w->>0) identity AS owner, w->>0 AS tid, w->>1 AS queue,
    convert_to(w->>2, 'UTF8') AS payload, (w->>3)::bigint AS run_at FROM r, json_array_elements(work)
    WITH ORDINALITY AS u(w, n) ORDER BY identity, w->>0, n DESC),
before AS MATERIALIZED (SELECT identity, place FROM chaton.owners WHERE identity IN (SELECT identity FROM r)),
beat AS (INSERT INTO chaton.owners(identity, place, info, busy, quiet, rss_kb, reported_at)
    SELECT identity, place, info, busy, quiet, rss_kb, now_s FROM r ORDER BY identity
    ON CONFLICT (identity) DO UPDATE SET place=excluded.place,
    info=excluded.info, busy=excluded.busy, quiet=excluded.quiet, rss_kb=excluded.rss_kb,
    reported_at=excluded.reported_at, beat_at=clock_timestamp()),
runs AS (INSERT INTO chaton.work(owner, tid, queue, payload, run_at) SELECT * FROM job
    ON CONFLICT (owner, tid) DO UPDATE
    SET queue=excluded.queue, payload=excluded.payload, run_at=excluded.run_at),
ended AS (DELETE FROM chaton.work w WHERE owner IN (SELECT identity FROM r)
    AND NOT EXISTS(SELECT 1 FROM job WHERE job.owner=w.owner AND job.tid=w.tid)),
counted AS (INSERT INTO chaton.counters AS c (name, value)
    SELECT * FROM (SELECT 'failed', sum(failed)::bigint AS value FROM r
        UNION ALL SELECT 'processed', sum(processed)::bigint FROM r) n WHERE value>0
    ON CONFLICT (name) DO UPDATE SET value=c.value+excluded.value),
left_for AS (DELETE FROM chaton.signals WHERE identity IN (SELECT identity FROM r) OR until<=extract(epoch FROM now())::float8
    RETURNING id, identity, name, until)
SELECT r.identity, (SELECT place FROM before b WHERE b.identity=r.identity) IS NULL,
extract(epoch FROM clock_timestamp())::float8, (SELECT count(*) FROM chaton.owners)
    + (SELECT count(*) FROM r) - (SELECT count(*) FROM before),
ARRAY(SELECT name FROM left_for l WHERE l.identity=r.identity AND until>extract(epoch FROM now())::float8 ORDER BY id),
EXISTS(SELECT 1 FROM chaton.lines WHERE look_at<=(SELECT max(now_s) FROM r)
    OR look_at>(SELECT max(now_s) FROM r)+$2) FROM r
