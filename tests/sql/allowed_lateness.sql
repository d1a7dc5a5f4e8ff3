-- answer: by hand, from the table in late_records.sql: with 5 s of allowed lateness a record is late if
-- its window's end + 5 s is not beyond the watermark. 16 has 15 against 10.000 and 128 has 25 against
-- 20.001: in time now. 512 has 15 against 20.001: still late.
-- counters: records=10 late_records=1 windows=3
SET 'allowed_lateness' = '5 s';
CREATE TABLE events (
    ts TIMESTAMP(3), v BIGINT, WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH ('connector' = 'file', 'path' = 'data/late.csv', 'format' = 'csv');

SELECT window_start, COUNT(*) AS n, SUM(v) AS total
FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '10' SECOND))
GROUP BY window_start, window_end;
