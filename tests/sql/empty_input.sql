-- answer: by hand. No records, so no windows: only the column names, from a file with a header and from
-- one without a single byte.
CREATE TABLE header_only (
    ts TIMESTAMP(3), k BIGINT, v DOUBLE, WATERMARK FOR ts AS ts
) WITH ('connector' = 'file', 'path' = 'data/header_only.csv', 'format' = 'csv');
CREATE TABLE nothing (
    ts TIMESTAMP(3), k BIGINT, v DOUBLE, WATERMARK FOR ts AS ts
) WITH ('connector' = 'file', 'path' = 'data/empty.csv', 'format' = 'csv');

SELECT window_start, k, AVG(v) AS mean
FROM TABLE(TUMBLE(TABLE header_only, DESCRIPTOR(ts), INTERVAL '1' HOUR))
GROUP BY window_start, window_end, k;

SELECT k, COUNT(*) AS n FROM nothing GROUP BY k;

SELECT ts, v FROM nothing;
