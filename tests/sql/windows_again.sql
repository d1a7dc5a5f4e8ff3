-- answer: by hand. Seconds of the records, their users and costs (one is NULL):
--   0 ann 1, 1 bob 2, 2 ann 3, 3 ann -, 4 bob 5, 10 cid 6, 11 bob 7, 12 cid 8, 20 ann 9
-- 10 s every 5 s: [-5, 5) and [0, 10): ann 3, bob 2; [5, 15) and [10, 20): bob 1, cid 2; [15, 25) and
-- [20, 30): ann 1. Ends of the first four lie in (0, 20], so their time is in [0, 20).
-- Up to 15 s by 5 s: [0, 5) and [0, 10): ann 3, bob 2; [0, 15): ann 3, bob 3, cid 2; [15, 25) and
-- [15, 30): ann 1.
-- exchange: refused
CREATE TABLE clicks (
    ts TIMESTAMP(3), user_name STRING, kind STRING, cost INT, WATERMARK FOR ts AS ts
) WITH ('connector' = 'file', 'path' = 'data/clicks.csv', 'format' = 'csv');

CREATE VIEW hops AS
    SELECT window_start AS s, window_end AS e, window_time AS t, user_name, COUNT(*) AS n
    FROM TABLE(HOP(TABLE clicks, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '10' SECOND))
    GROUP BY window_start, window_end, window_time, user_name;

-- By the same windows again: users and records.
SELECT s, e, t, COUNT(*) AS users, SUM(n) AS n FROM hops GROUP BY s, e, t;

-- By longer ones.
SELECT window_start, SUM(n) AS n
FROM TABLE(TUMBLE(TABLE hops, DESCRIPTOR(t), INTERVAL '20' SECOND))
GROUP BY window_start, window_end;

CREATE VIEW growing AS
    SELECT window_start AS s, window_end AS e, user_name, COUNT(*) AS n
    FROM TABLE(CUMULATE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '15' SECOND))
    GROUP BY window_start, window_end, user_name;

SELECT e, s, MAX(n) AS most, COUNT(*) AS users FROM growing WHERE n > 1 GROUP BY s, e;

-- Of short steps, by the window alone: each record is in four windows of each kind, and no two in one.
CREATE VIEW short_steps AS
    SELECT window_time AS t
    FROM TABLE(CUMULATE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '0.05' SECOND, INTERVAL '0.2' SECOND))
    GROUP BY window_start, window_end, window_time;
SELECT window_start, COUNT(*) AS n FROM TABLE(TUMBLE(TABLE short_steps, DESCRIPTOR(t), INTERVAL '10' SECOND))
GROUP BY window_start;

CREATE VIEW short_slides AS
    SELECT window_time AS t
    FROM TABLE(HOP(TABLE clicks, DESCRIPTOR(ts), INTERVAL '0.05' SECOND, INTERVAL '0.2' SECOND))
    GROUP BY window_start, window_end, window_time;
SELECT window_start, COUNT(*) AS n FROM TABLE(TUMBLE(TABLE short_slides, DESCRIPTOR(t), INTERVAL '10' SECOND))
GROUP BY window_start;
