-- answer: by hand. A watermark that is no plain difference: 5 s behind for odd v (only the first record),
-- 20 s for even. Watermarks of the records: 0, -8, -10.001, -5, -11, -10, 5.001, -0.001, 0, -19; the running
-- maximum never reaches 10, so nothing is late.
-- counters: records=10 late_records=0 windows=3
CREATE TABLE events (
    ts TIMESTAMP(3), v BIGINT,
    WATERMARK FOR ts AS CASE WHEN v % 2 = 1 THEN ts - INTERVAL '5' SECOND
                             ELSE ts - INTERVAL '20' SECOND END
) WITH ('connector' = 'file', 'path' = 'data/late.csv', 'format' = 'csv');

SELECT window_start, COUNT(*) AS n, SUM(v) AS total
FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '10' SECOND))
GROUP BY window_start, window_end;
