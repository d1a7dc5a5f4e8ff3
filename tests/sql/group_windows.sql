-- answer: by hand. Seconds of the records, their users and costs (one is NULL):
--   0 ann 1, 1 bob 2, 2 ann 3, 3 ann -, 4 bob 5, 10 cid 6, 11 bob 7, 12 cid 8, 20 ann 9
-- Of 10 s: [0, 10) the first five, [10, 20) three, [20, 30) the last; with costs alone that are not NULL
-- ann has 2 in the first. 20 s every 10 s: [-10, 10) 5, [0, 20) 8, [10, 30) 4, [20, 40) 1.
CREATE TABLE clicks (
    ts TIMESTAMP(3), user_name STRING, kind STRING, cost INT, WATERMARK FOR ts AS ts
) WITH ('connector' = 'file', 'path' = 'data/clicks.csv', 'format' = 'csv');

SELECT TUMBLE_START(ts, INTERVAL '10' SECOND) AS s, TUMBLE_END(ts, INTERVAL '10' SECOND) AS e,
       user_name, COUNT(*) AS n, SUM(cost) AS total
FROM clicks AS c
WHERE c.cost IS NOT NULL
GROUP BY TUMBLE(ts, INTERVAL '10' SECOND), c.user_name
HAVING TUMBLE_START(ts, INTERVAL '10' SECOND) < TIMESTAMP '2024-01-01 00:00:20';

SELECT hop_start(ts, INTERVAL '10' SECOND, INTERVAL '20' SECOND) AS s, COUNT(*) AS n
FROM clicks
GROUP BY HOP(ts, INTERVAL '10' SECOND, INTERVAL '20' SECOND);
