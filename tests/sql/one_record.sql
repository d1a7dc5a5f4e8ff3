-- answer: by hand. The only record, on a leap day, in a file without a final line end.
-- counters: records=1 windows=1 rows=1
CREATE TABLE one (
    ts TIMESTAMP(3), v BIGINT, WATERMARK FOR ts AS ts - INTERVAL '1' DAY
) WITH ('connector' = 'file', 'path' = 'data/one.csv', 'format' = 'csv');

SELECT window_start, window_end, COUNT(*) AS n, AVG(v) AS mean
FROM TABLE(TUMBLE(TABLE one, DESCRIPTOR(ts), INTERVAL '1' DAY))
GROUP BY window_start, window_end;
