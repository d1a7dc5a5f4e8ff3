-- answer: by hand. Each record is in four groups. The set (kind) stands twice, and so do its rows. Costs count once.
-- exchange: refused
CREATE TABLE clicks (
    ts TIMESTAMP(3), user_name STRING, kind STRING, cost INT, WATERMARK FOR ts AS ts
) WITH ('connector' = 'file', 'path' = 'data/clicks.csv', 'format' = 'csv');

SELECT user_name, kind, GROUPING(user_name) AS gu, GROUPING(kind) AS gk, COUNT(*) AS n, COUNT(DISTINCT cost) AS costs
FROM clicks WHERE user_name <> 'bob'
GROUP BY GROUPING SETS ((user_name, kind), (user_name), (kind), (kind), ())
HAVING COUNT(*) > 1;
