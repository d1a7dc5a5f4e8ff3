-- answer: by hand. Stateless rows keep the file's order; LIMIT and OFFSET count rows that pass WHERE.
CREATE TABLE clicks (
    ts TIMESTAMP(3), user_name STRING, kind STRING, cost INT, WATERMARK FOR ts AS ts
) WITH ('connector' = 'file', 'path' = 'data/clicks.csv', 'format' = 'csv');

SELECT user_name, cost, cost % 3 AS rest FROM clicks WHERE kind = 'view' LIMIT 3;

SELECT user_name || '/' || kind AS what FROM clicks WHERE cost > 1 LIMIT 2 OFFSET 3;

SELECT cost FROM clicks LIMIT 0;

SELECT kind FROM clicks LIMIT 100 OFFSET 7;
