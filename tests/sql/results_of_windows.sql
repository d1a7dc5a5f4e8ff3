-- answer: by hand. Results of windows, of which a later query names the end alone.
-- Of clicks (as in windows_again.sql), 10 s every 5 s: [-5, 5) and [0, 10): ann 3, bob 2; [5, 15) and [10, 20): bob 1,
-- cid 2; [15, 25) and [20, 30): ann 1.
-- Up to 15 s by 5 s: [0, 5) and [0, 10): ann 3, bob 2; [0, 15): ann 3, bob 3, cid 2; [15, 25) and [15, 30): ann 1.
-- Sessions with gaps of 2 s: a [1, 5), 2 records, 4 in all; b [2, 5), 2 records, 6 in all; c [10, 12), 1 record, 5.
-- exchange: refused
CREATE TABLE clicks (
    ts TIMESTAMP(3), user_name STRING, kind STRING, cost INT, WATERMARK FOR ts AS ts
) WITH ('connector' = 'file', 'path' = 'data/clicks.csv', 'format' = 'csv');
CREATE TABLE visits (
    ts TIMESTAMP(3), who STRING, n INT, WATERMARK FOR ts AS ts
) WITH ('connector' = 'file', 'path' = 'data/ends.csv', 'format' = 'csv');

CREATE VIEW hops AS
    SELECT window_start AS s, window_end AS e, window_time AS t, user_name, COUNT(*) AS n
    FROM TABLE(HOP(TABLE clicks, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '10' SECOND))
    GROUP BY window_start, window_end, window_time, user_name;
CREATE VIEW growing AS
    SELECT window_start AS s, window_end AS e, window_time AS t, user_name, COUNT(*) AS n
    FROM TABLE(CUMULATE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '15' SECOND))
    GROUP BY window_start, window_end, window_time, user_name;
CREATE VIEW stays AS
    SELECT window_start AS s, window_end AS e, window_time AS t, who, COUNT(*) AS n, SUM(n) AS total
    FROM TABLE(SESSION(TABLE visits PARTITION BY who, DESCRIPTOR(ts), INTERVAL '2' SECOND))
    GROUP BY window_start, window_end, window_time, who;

-- The start is that of the window.
SELECT e, s, user_name, n FROM (
    SELECT *, ROW_NUMBER() OVER (PARTITION BY e ORDER BY n DESC) AS rn FROM hops
) WHERE rn = 1;

-- Not computed from the time either, and nothing is sorted by it.
SELECT e, s, s + INTERVAL '1' SECOND AS later, user_name FROM (
    SELECT *, RANK() OVER (PARTITION BY t ORDER BY s, n DESC) AS r FROM growing
) WHERE r = 1;

-- The rows are still those of the window, and meet others of it.
CREATE VIEW first AS
    SELECT e, s, user_name FROM (
        SELECT *, ROW_NUMBER() OVER (PARTITION BY e ORDER BY n DESC, user_name) AS rn FROM growing
    ) WHERE rn = 1;
SELECT l.e, l.s, l.user_name, r.user_name AS other, r.n
FROM first l JOIN growing r ON l.s = r.s AND l.e = r.e AND l.user_name <> r.user_name;

-- The same above a join.
SELECT e, s, user_name FROM (
    SELECT r.s, r.e, r.user_name, ROW_NUMBER() OVER (PARTITION BY l.e ORDER BY r.n) AS rn
    FROM hops l JOIN hops r ON l.s = r.s AND l.e = r.e AND l.user_name = r.user_name
) WHERE rn = 1;

-- Sessions that end together have begun at different times: each row has its own, and may be sorted by it.
SELECT e, s, who, total FROM (
    SELECT *, ROW_NUMBER() OVER (PARTITION BY e ORDER BY total DESC) AS rn FROM stays
) WHERE rn = 1;
SELECT e, s, who FROM (
    SELECT *, ROW_NUMBER() OVER (PARTITION BY t ORDER BY s DESC) AS rn FROM stays
) WHERE rn = 1;

-- Values that count once.
SELECT e, s, COUNT(DISTINCT user_name) AS users, COUNT(DISTINCT n) AS counts, COUNT(*) AS c FROM hops GROUP BY s, e;
SELECT e, COUNT(DISTINCT n) AS counts FROM growing GROUP BY e;
SELECT l.e, COUNT(DISTINCT r.user_name) AS users
FROM growing l JOIN growing r ON l.s = r.s AND l.e = r.e GROUP BY l.s, l.e;
-- Of sessions that end together.
SELECT e, COUNT(DISTINCT n) AS counts, COUNT(*) AS c FROM stays GROUP BY e;
