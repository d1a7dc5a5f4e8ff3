-- answer: by hand. Behind 00:00:12, a record of 00:00:09 is late: for the whole query once, though several stages
-- take it. With HAVING and expressions over the values that count once.
-- counters: late_records=1
-- exchange: refused
CREATE TABLE events (ts TIMESTAMP(3), k INT, v INT, WATERMARK FOR ts AS ts)
WITH ('connector' = 'file', 'path' = 'data/distinct_late.csv', 'format' = 'csv');

SELECT window_start, k, 10 * COUNT(DISTINCT v) AS n, SUM(v) AS total
FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '10' SECOND))
GROUP BY window_start, window_end, k
HAVING COUNT(DISTINCT v) > 1 OR SUM(v) IS NULL;
