-- answer: by hand. A record moves the watermark on to 5 s before itself, if that is later; what is shown is
-- the watermark just before the record.
-- counters: records=20
CREATE TABLE events (
    ts TIMESTAMP(3), v BIGINT, WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH ('connector' = 'file', 'path' = 'data/late.csv', 'format' = 'csv');

SELECT v, CURRENT_WATERMARK(ts) AS w, ts < CURRENT_WATERMARK(ts) AS behind FROM events;

CREATE VIEW known AS SELECT ts, v, CURRENT_WATERMARK(ts) AS w FROM events WHERE v <> 4;

SELECT w, COUNT(*) AS n, SUM(v) AS total FROM known WHERE CURRENT_WATERMARK(ts) IS NULL OR v > 1 GROUP BY w;
