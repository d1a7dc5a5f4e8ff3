-- answer: by hand, as in late_records. Per 10 s, the records in time and the sum of v:
--   [0, 10) 2, 5;   [10, 20) 3, 42;   [20, 30) 2, 320;   3 late
-- Each of a window meets each: 4, 9 and 4 pairs, in which each v is as often as there are records.
-- The table is read once, and what is late is counted once.
-- counters: records=10 late_records=3
-- exchange: refused
CREATE TABLE events (
    ts TIMESTAMP(3), v BIGINT, WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH ('connector' = 'file', 'path' = 'data/late.csv', 'format' = 'csv');
CREATE VIEW e AS SELECT * FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '10' SECOND));

SELECT a.window_start, COUNT(*) AS n, SUM(a.v) AS total
FROM e AS a JOIN e AS b ON a.window_start = b.window_start AND a.window_end = b.window_end
GROUP BY a.window_start, a.window_end;
