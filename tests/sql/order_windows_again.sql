-- answer: by hand, from order_windows.sql: to :05 and :10 a user with 3 records and one with 2; to :15 and :20 one with 1
-- and one with 2; to :25 and :30 one with 1. Within 20 s from :00 on end 4 windows, which fire together.
-- exchange: refused
CREATE TABLE clicks (
    ts TIMESTAMP(3), user_name STRING, kind STRING, cost INT, WATERMARK FOR ts AS ts
) WITH ('connector' = 'file', 'path' = 'data/clicks.csv', 'format' = 'csv');

CREATE VIEW hops AS
    SELECT window_start AS s, window_end AS e, window_time AS t, user_name, COUNT(*) AS n
    FROM TABLE(HOP(TABLE clicks, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '10' SECOND))
    GROUP BY window_start, window_end, window_time, user_name;

SELECT n, COUNT(*) AS users FROM hops GROUP BY s, e, n ORDER BY e, n DESC;

SELECT user_name, SUM(n) AS n
FROM TABLE(TUMBLE(TABLE hops, DESCRIPTOR(t), INTERVAL '20' SECOND))
GROUP BY window_start, window_end, user_name
ORDER BY window_start, n DESC, user_name DESC;

-- Of several groupings: per 10 s ann 3, bob 2; bob 1, cid 2; ann 1; sessions of ann 3, bob 3, cid 2, ann 1.
SELECT user_name, COUNT(*) AS n FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '10' SECOND))
GROUP BY window_start, window_end, user_name
UNION ALL
SELECT user_name, COUNT(*)
FROM TABLE(SESSION(TABLE clicks PARTITION BY user_name, DESCRIPTOR(ts), INTERVAL '10' SECOND))
GROUP BY window_start, window_end, user_name ORDER BY n DESC, user_name LIMIT 4;
