-- answer: by hand. The records without a time (2 and 16) belong to no window.
-- counters: records=15 null_time_records=7 late_records=0 windows=2
CREATE TABLE events (
    ts TIMESTAMP(3),
    v BIGINT,
    WATERMARK FOR ts AS ts - INTERVAL '1' SECOND
) WITH ('connector' = 'file', 'path' = 'data/null_time.csv', 'format' = 'csv');

SELECT window_start, COUNT(*) AS n, SUM(v) AS total
FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '10' SECOND))
GROUP BY window_start, window_end;

-- Nor do they join by times: they are left out, and counted again: 2, and of two sides 2 and 1.
SELECT a.v, b.v AS other FROM events AS a LEFT JOIN events AS b ON a.ts = b.ts;
SELECT v AS alone FROM events AS a WHERE NOT EXISTS (SELECT 1 FROM events AS b WHERE a.ts = b.ts AND b.v < 8);
