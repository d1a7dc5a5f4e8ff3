-- answer: by hand, from group_windows.sql.
-- Sessions with gaps of 5 s, of each user: ann [0, 8) 3 records; bob [1, 9) 2; bob [11, 16) 1; cid
-- [10, 17) 2; ann [20, 25) 1. Those that end in [0, 10), [10, 20), [20, 30): 2, 2, 1.
-- exchange: refused
CREATE TABLE clicks (
    ts TIMESTAMP(3), user_name STRING, kind STRING, cost INT, WATERMARK FOR ts AS ts
) WITH ('connector' = 'file', 'path' = 'data/clicks.csv', 'format' = 'csv');

CREATE VIEW sittings AS
    SELECT SESSION_START(ts, INTERVAL '5' SECOND) AS s, SESSION_END(ts, INTERVAL '5' SECOND) AS e,
           SESSION_ROWTIME(ts, INTERVAL '5' SECOND) AS t, user_name, COUNT(*) AS n
    FROM clicks
    GROUP BY user_name, SESSION(ts, INTERVAL '5' SECOND);

SELECT s, e, user_name, n FROM sittings;

-- By the time of the sessions, their last millisecond.
SELECT TUMBLE_END(t, INTERVAL '10' SECOND) AS e, COUNT(*) AS sittings, SUM(n) AS n
FROM sittings GROUP BY TUMBLE(t, INTERVAL '10' SECOND);
