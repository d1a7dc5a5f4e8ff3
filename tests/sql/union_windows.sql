-- answer: by hand, as in late_records and cascade. Per 10 s:
--   events        [0, 10) 2 in time, 5;   [10, 20) 3, 42;        [20, 30) 2, 320;  3 late
--   clicks        [0, 10) 5, 1+2+3+5=11;  [10, 20) 3, 6+7+8=21;  [20, 30) 1, 9;    none late
-- Who is late is decided by the watermark of the own table.
-- counters: records=19 late_records=3 windows=3
-- exchange: refused
CREATE TABLE clicks (
    ts TIMESTAMP(3), user_name STRING, kind STRING, cost INT, WATERMARK FOR ts AS ts
) WITH ('connector' = 'file', 'path' = 'data/clicks.csv', 'format' = 'csv');
CREATE TABLE events (
    ts TIMESTAMP(3), v BIGINT, WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH ('connector' = 'file', 'path' = 'data/late.csv', 'format' = 'csv');

CREATE VIEW both AS SELECT ts, v FROM events UNION ALL SELECT ts, cost FROM clicks;

SELECT window_start, COUNT(*) AS n, SUM(v) AS total
FROM TABLE(TUMBLE(TABLE both, DESCRIPTOR(ts), INTERVAL '10' SECOND))
GROUP BY window_start, window_end;
