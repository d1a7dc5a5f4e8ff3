-- answer: by hand. 64 records of one window, 64 of the year 9999, then 64 of the first window again: whole
-- blocks of records lie too far ahead to be believed, and make no record after them late.
-- settings: watermark.max_ahead=1 day
-- counters: records=192 late_records=0 ahead_records=64 windows=2
CREATE TABLE events (
    ts TIMESTAMP(3), v BIGINT, WATERMARK FOR ts AS ts - INTERVAL '1' SECOND
) WITH ('connector' = 'file', 'path' = 'data/year_9999_block.csv', 'format' = 'csv');

SELECT window_start, SUM(v) AS total
FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '10' SECOND))
GROUP BY window_start, window_end;
