-- answer: by hand. The window at 20 s has no user with two records, so it has no row.
CREATE TABLE clicks (
    ts TIMESTAMP(3), user_name STRING, kind STRING, cost INT, WATERMARK FOR ts AS ts
) WITH ('connector' = 'file', 'path' = 'data/clicks.csv', 'format' = 'csv');

SELECT window_start, user_name, COUNT(*) AS n, SUM(cost) AS total
FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '10' SECOND))
GROUP BY window_start, window_end, user_name
HAVING COUNT(*) >= 2 AND SUM(cost) > 4;
