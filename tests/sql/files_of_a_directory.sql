-- answer: by hand. Each file has a watermark of its own, without delay. In a.ndjson the record n = 8 comes after
-- 00:01:10, when its minute has passed: it is late. In b.ndjson, over the same minute, nothing is.
-- counters: records=9 late_records=1 windows=3
CREATE TABLE logs (ts TIMESTAMP(3), page STRING, n BIGINT, WATERMARK FOR ts AS ts)
WITH ('connector' = 'file', 'format' = 'ndjson', 'path' = 'data/several/*.ndjson');

SELECT window_start, page, COUNT(*) AS records, SUM(n) AS n
FROM TABLE(TUMBLE(TABLE logs, DESCRIPTOR(ts), INTERVAL '1' MINUTE))
GROUP BY window_start, window_end, page;
