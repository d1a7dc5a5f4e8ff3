-- answer: by hand. One side is made of what the other side is, too.
-- Of clicks (as in windows_again.sql), in 10 s: [0, 10): ann 3, bob 2; [10, 20): bob 1, cid 2; [20, 30): ann 1.
-- Records in sessions with gaps of 2 s: ann [0, 5) 3, [20, 22) 1; bob [1, 3) 1, [4, 6) 1, [11, 13) 1; cid [10, 14) 2.
-- exchange: refused
CREATE TABLE clicks (
    ts TIMESTAMP(3), user_name STRING, kind STRING, cost INT, WATERMARK FOR ts AS ts
) WITH ('connector' = 'file', 'path' = 'data/clicks.csv', 'format' = 'csv');
CREATE TABLE again (
    ts TIMESTAMP(3), user_name STRING, kind STRING, cost INT, WATERMARK FOR ts AS ts
) WITH ('connector' = 'file', 'path' = 'data/clicks.csv', 'format' = 'csv');

CREATE VIEW counts AS
    SELECT window_start AS s, window_end AS e, window_time AS t, user_name, COUNT(*) AS n
    FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '10' SECOND))
    GROUP BY window_start, window_end, window_time, user_name;
CREATE VIEW most AS SELECT s, e, MAX(n) AS m FROM counts GROUP BY s, e;

-- The maximum, and what it is the maximum of, on either side.
SELECT r.s, r.user_name, r.n FROM most l JOIN counts r ON l.s = r.s AND l.e = r.e AND l.m = r.n;
SELECT l.s, l.user_name, l.n FROM counts l JOIN most r ON l.s = r.s AND l.e = r.e AND l.n = r.m;
SELECT l.s, l.m FROM most l WHERE EXISTS (SELECT 1 FROM counts r WHERE l.s = r.s AND l.e = r.e AND r.n = 1);

-- Within an interval: the maxima of 20 s, and counts of the 10 s before.
CREATE VIEW longer AS
    SELECT window_time AS t, MAX(n) AS m FROM TABLE(TUMBLE(TABLE counts, DESCRIPTOR(t), INTERVAL '20' SECOND))
    GROUP BY window_start, window_end, window_time;
SELECT l.m, r.user_name, r.n FROM longer l JOIN counts r ON r.t BETWEEN l.t - INTERVAL '10' SECOND AND l.t;

-- Three sides that are sessions: of a session's records each with each with each.
CREATE VIEW stays AS
    SELECT * FROM TABLE(SESSION(TABLE clicks PARTITION BY user_name, DESCRIPTOR(ts), INTERVAL '2' SECOND));
CREATE VIEW others AS
    SELECT * FROM TABLE(SESSION(TABLE again PARTITION BY user_name, DESCRIPTOR(ts), INTERVAL '2' SECOND));
CREATE VIEW pairs AS
    SELECT x.window_start, x.window_end, x.user_name FROM stays x JOIN others y
    ON x.window_start = y.window_start AND x.window_end = y.window_end AND x.user_name = y.user_name;
SELECT z.window_end, z.window_start, z.user_name, COUNT(*) AS n FROM others z JOIN pairs u
ON z.window_start = u.window_start AND z.window_end = u.window_end AND z.user_name = u.user_name
GROUP BY z.window_start, z.window_end, z.user_name;
