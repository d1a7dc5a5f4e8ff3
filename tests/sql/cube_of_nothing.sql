-- answer: by hand. Without records, the set without keys has a row, the others have none.
-- exchange: refused
CREATE TABLE clicks (
    ts TIMESTAMP(3), user_name STRING, kind STRING, cost INT, WATERMARK FOR ts AS ts
) WITH ('connector' = 'file', 'path' = 'data/clicks.csv', 'format' = 'csv');

SELECT user_name, kind, GROUPING_ID(user_name, kind) AS g, COUNT(*) AS n, COUNT(DISTINCT cost) AS costs
FROM clicks WHERE cost > 100 GROUP BY CUBE (user_name, kind);
