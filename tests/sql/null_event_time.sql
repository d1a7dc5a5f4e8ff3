-- answer: by hand. The records without a time (2 and 16) belong to no window.
-- counters: records=5 null_time_records=2 late_records=0 windows=2
CREATE TABLE events (
    ts TIMESTAMP(3),
    v BIGINT,
    WATERMARK FOR ts AS ts - INTERVAL '1' SECOND
) WITH ('connector' = 'file', 'path' = 'data/null_time.csv', 'format' = 'csv');

SELECT window_start, COUNT(*) AS n, SUM(v) AS total
FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '10' SECOND))
GROUP BY window_start, window_end;
