-- answer: by hand, from late_records.sql. Every record moves the watermark, also one that WHERE throws
-- away (64 is thrown away, and 128 and 512 are late because of it); only records that pass WHERE
-- are counted as late.
-- counters: records=10 late_records=2 windows=3
CREATE TABLE events (
    ts TIMESTAMP(3), v BIGINT, WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH ('connector' = 'file', 'path' = 'data/late.csv', 'format' = 'csv');

SELECT window_start, COUNT(*) AS n, SUM(v) AS total
FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '10' SECOND))
WHERE v <> 64 AND v <> 16
GROUP BY window_start, window_end;
