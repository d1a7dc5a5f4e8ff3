-- exchange: refused
-- answer: by hand. The first number of a group is the bits of (user_name, kind) that it leaves out. Ann has two views,
-- one of which has no cost.
CREATE TABLE clicks (
    ts TIMESTAMP(3), user_name STRING, kind STRING, cost INT, WATERMARK FOR ts AS ts
) WITH ('connector' = 'file', 'path' = 'data/clicks.csv', 'format' = 'csv');

SELECT window_start, user_name, kind, GROUPING(user_name, kind) AS g, GROUPING(kind) AS gk, COUNT(*) AS n,
       SUM(cost) AS total, AVG(cost) AS mean
FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '10' SECOND))
GROUP BY window_start, window_end, ROLLUP (user_name, kind);
