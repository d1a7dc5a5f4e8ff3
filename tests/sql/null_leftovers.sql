-- answer: by hand. A NULL that NULLIF makes of 7 is the same as one that was read: one group, whatever
-- value an array may keep below a NULL.
CREATE TABLE events (
    ts TIMESTAMP(3), k BIGINT, name STRING, v BIGINT, WATERMARK FOR ts AS ts
) WITH ('connector' = 'file', 'path' = 'data/null_leftovers.csv', 'format' = 'csv', 'csv.null-literal' = '');

SELECT window_start, NULLIF(k, 7) AS k, COUNT(*) AS n, SUM(v) AS total
FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '10' SECOND))
GROUP BY window_start, window_end, NULLIF(k, 7);

SELECT NULLIF(name, 'seven') AS name, COUNT(*) AS n, SUM(v) AS total FROM events GROUP BY NULLIF(name, 'seven');

SELECT NULLIF(CAST(k AS DOUBLE), 7.0) AS d, NULLIF(k = 8, FALSE) AS b, COUNT(*) AS n, SUM(v) AS total
FROM events GROUP BY NULLIF(CAST(k AS DOUBLE), 7.0), NULLIF(k = 8, FALSE);
