-- answer: by hand. In a file, which takes no notice of the clock by default, the first record of the year 9999 moves the watermark
-- there; the records 4, 8 and 32 come after it and are late.
-- counters: records=6 late_records=3 ahead_records=0 windows=2
CREATE TABLE events (
    ts TIMESTAMP(3), v BIGINT, WATERMARK FOR ts AS ts - INTERVAL '1' SECOND
) WITH ('connector' = 'file', 'path' = 'data/year_9999.csv', 'format' = 'csv');

SELECT window_start, SUM(v) AS total
FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '10' SECOND))
GROUP BY window_start, window_end;
