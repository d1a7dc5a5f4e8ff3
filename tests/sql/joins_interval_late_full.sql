-- answer: by hand, of the records of joins_interval_late that are in time: 1, 2, 4, 8, 32 and 64. A FULL JOIN within an
-- interval is two stages, and each record that is late is counted once.
-- exchange: refused
-- counters: records=30 late_records=8
CREATE TABLE events (
    ts TIMESTAMP(3), v BIGINT, WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH ('connector' = 'file', 'path' = 'data/late.csv', 'format' = 'csv');
CREATE TABLE patient (
    ts TIMESTAMP(3), v BIGINT, WATERMARK FOR ts AS ts - INTERVAL '1' HOUR
) WITH ('connector' = 'file', 'path' = 'data/late.csv', 'format' = 'csv');

SELECT a.v, b.v AS next
FROM events AS a FULL JOIN events AS b ON b.ts > a.ts AND b.ts <= a.ts + INTERVAL '3' SECOND
ORDER BY v, next;

-- A condition on one side, which all of its rows are given for.
SELECT a.v, b.v AS near
FROM patient AS a FULL JOIN events AS b
ON b.ts BETWEEN a.ts - INTERVAL '1' SECOND AND a.ts + INTERVAL '2' SECOND AND b.v > 40
ORDER BY v, near;
