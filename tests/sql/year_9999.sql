-- answer: by hand. Records of the year 9999 lie further ahead of the clock than watermark.max_ahead
-- (a day): they count in their own window but do not make the others late.
-- settings: watermark.max_ahead=1 day
-- counters: records=6 late_records=0 ahead_records=2 windows=3
CREATE TABLE events (
    ts TIMESTAMP(3), v BIGINT, WATERMARK FOR ts AS ts - INTERVAL '1' SECOND
) WITH ('connector' = 'file', 'path' = 'data/year_9999.csv', 'format' = 'csv');

SELECT window_start, SUM(v) AS total
FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '10' SECOND))
GROUP BY window_start, window_end;
