-- answer: by hand. Over no record there is still one row.
-- exchange: refused
CREATE TABLE clicks (
    ts TIMESTAMP(3), user_name STRING, kind STRING, cost INT, WATERMARK FOR ts AS ts
) WITH ('connector' = 'file', 'path' = 'data/clicks.csv', 'format' = 'csv');

SELECT COUNT(DISTINCT cost) AS costs, SUM(DISTINCT cost) AS total, COUNT(*) AS n, MAX(cost) AS most
FROM clicks WHERE cost > 100;
