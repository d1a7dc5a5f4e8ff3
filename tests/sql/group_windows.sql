-- answer: by hand. Seconds of the records, their users and costs (one is NULL):
--   0 ann 1, 1 bob 2, 2 ann 3, 3 ann -, 4 bob 5, 10 cid 6, 11 bob 7, 12 cid 8, 20 ann 9
-- Of 10 s: [0, 10) the first five, [10, 20) three, [20, 30) the last; with costs alone that are not NULL
-- ann has 2 in the first. 20 s every 10 s: [-10, 10) 5, [0, 20) 8, [10, 30) 4, [20, 40) 1.
-- Sessions with gaps of 5 s, of each user: ann [0, 8) 3 records; bob [1, 9) 2; bob [11, 16) 1; cid
-- [10, 17) 2; ann [20, 25) 1. Those that end in [0, 10), [10, 20), [20, 30): 2, 2, 1.
-- exchange: refused
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

CREATE VIEW sittings AS
    SELECT SESSION_START(ts, INTERVAL '5' SECOND) AS s, SESSION_END(ts, INTERVAL '5' SECOND) AS e,
           SESSION_ROWTIME(ts, INTERVAL '5' SECOND) AS t, user_name, COUNT(*) AS n
    FROM clicks
    GROUP BY user_name, SESSION(ts, INTERVAL '5' SECOND);

SELECT s, e, user_name, n FROM sittings;

-- By the time of the sessions, their last millisecond.
SELECT TUMBLE_END(t, INTERVAL '10' SECOND) AS e, COUNT(*) AS sittings, SUM(n) AS n
FROM sittings GROUP BY TUMBLE(t, INTERVAL '10' SECOND);
