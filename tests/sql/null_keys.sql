-- answer: by hand. NULLs are one group; NULL is neither the empty string nor 0. Rows of a window are
-- sorted from left to right, NULLs last.
CREATE TABLE events (
    ts TIMESTAMP(3),
    name STRING,
    size INT,
    v BIGINT,
    WATERMARK FOR ts AS ts
) WITH ('connector' = 'file', 'path' = 'data/null_keys.csv', 'format' = 'csv');

SELECT window_start, name, size, COUNT(*) AS n, COUNT(v) AS known, SUM(v) AS total
FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '10' SECOND))
GROUP BY window_start, window_end, name, size;
