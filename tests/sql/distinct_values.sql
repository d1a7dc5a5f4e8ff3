-- answer: by hand. No cost is over 100: no value counts, and none is added up.
-- exchange: refused
CREATE TABLE clicks (
    ts TIMESTAMP(3), user_name STRING, kind STRING, cost INT, WATERMARK FOR ts AS ts
) WITH ('connector' = 'file', 'path' = 'data/clicks.csv', 'format' = 'csv');

SELECT window_start, COUNT(*) AS n, COUNT(DISTINCT user_name) AS users,
       COUNT(DISTINCT kind) FILTER (WHERE cost > 1) AS kinds, COUNT(DISTINCT user_name, kind) AS pairs,
       SUM(DISTINCT CHAR_LENGTH(kind)) AS total, AVG(DISTINCT CHAR_LENGTH(kind)) AS mean, MAX(DISTINCT user_name) AS last,
       COUNT(DISTINCT cost) FILTER (WHERE cost > 100) AS none, SUM(DISTINCT cost) FILTER (WHERE cost > 100) AS nothing
FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '10' SECOND))
GROUP BY window_start, window_end;
