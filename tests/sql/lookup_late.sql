-- answer: by hand, from late_records: 16, 128 and 512 are late, and each is dropped once, whether it has
-- matches or none. 1 and 64 have two.
-- exchange: refused
-- counters: records=10 late_records=3 windows=2
CREATE TABLE events (
    ts TIMESTAMP(3), v BIGINT, proc AS PROCTIME(), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH ('connector' = 'file', 'path' = 'data/late.csv', 'format' = 'csv');
CREATE TABLE side (v INT) WITH ('connector' = 'file', 'path' = 'data/side_values.csv', 'format' = 'csv');
CREATE VIEW matches AS
    SELECT e.ts, s.v FROM events AS e JOIN side FOR SYSTEM_TIME AS OF e.proc AS s ON e.v = s.v;

SELECT window_start, COUNT(*) AS n, SUM(v) AS total
FROM TABLE(TUMBLE(TABLE matches, DESCRIPTOR(ts), INTERVAL '10' SECOND))
GROUP BY window_start, window_end;
