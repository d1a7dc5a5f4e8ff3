-- answer: by hand. Without a window a bounded input is grouped as a whole, once, at its end.
CREATE TABLE clicks (
    ts TIMESTAMP(3), user_name STRING, kind STRING, cost INT, WATERMARK FOR ts AS ts
) WITH ('connector' = 'file', 'path' = 'data/clicks.csv', 'format' = 'csv');

SELECT user_name, kind, COUNT(*) AS n, SUM(cost) AS total FROM clicks GROUP BY user_name, kind;

SELECT COUNT(*) AS n, COUNT(cost) AS known, AVG(cost) AS mean FROM clicks WHERE user_name = 'bob';

SELECT DISTINCT kind FROM clicks;
