-- answer: by DuckDB
-- exchange: refused
CREATE TABLE calls (
    ts TIMESTAMP(3), caller BIGINT, cost INT, tag STRING, WATERMARK FOR ts AS ts - INTERVAL '2' SECOND
) WITH ('connector' = 'file', 'path' = 'data/join_calls.csv', 'format' = 'csv', 'csv.null-literal' = '-');
CREATE TABLE users (
    at TIMESTAMP(3), id INT, level INT, name STRING, WATERMARK FOR at AS at - INTERVAL '2' SECOND
) WITH ('connector' = 'file', 'path' = 'data/join_users.csv', 'format' = 'csv', 'csv.null-literal' = '-');
CREATE VIEW c AS SELECT * FROM TABLE(TUMBLE(TABLE calls, DESCRIPTOR(ts), INTERVAL '10' SECOND));
CREATE VIEW u AS SELECT * FROM TABLE(TUMBLE(TABLE users, DESCRIPTOR(at), INTERVAL '10' SECOND));
-- Of users: 25 and 5 rows from 0 s on, 11 and 3 from 10 s on, 9 and 1 from 30 s on, 15 and 1 from 40 s on.
CREATE VIEW m AS SELECT window_start, window_end, MAX(level) AS most, COUNT(*) AS n
FROM u GROUP BY window_start, window_end;

-- The most expensive calls of each window: a global maximum joined back.
SELECT c.window_start, tag, cost FROM c
JOIN (SELECT window_start, window_end, MAX(cost) AS most FROM c GROUP BY window_start, window_end) AS m
ON c.window_start = m.window_start AND c.window_end = m.window_end AND cost = most;

-- Nothing is compared but the windows: each call next to what is known of its window.
SELECT tag, most, n FROM c JOIN m ON c.window_start = m.window_start AND c.window_end = m.window_end;

-- Calls without a partner, too: of windows without users, or since a condition is not true.
SELECT c.window_start, tag, most FROM c
LEFT JOIN m ON c.window_start = m.window_start AND c.window_end = m.window_end AND cost < most;

-- With a key.
SELECT tag, n FROM c LEFT JOIN m ON c.window_start = m.window_start AND c.window_end = m.window_end AND caller = n;

-- The small side comes first.
SELECT m.window_start, most, tag FROM m JOIN c
ON c.window_start = m.window_start AND c.window_end = m.window_end AND cost = most;

-- 
SELECT m.window_start, most, tag FROM m RIGHT JOIN c
ON c.window_start = m.window_start AND c.window_end = m.window_end AND cost = most;

-- 
SELECT tag FROM c WHERE EXISTS (
    SELECT 1 FROM m WHERE c.window_start = m.window_start AND c.window_end = m.window_end AND cost < most);

-- 
SELECT tag FROM c WHERE NOT EXISTS (
    SELECT 1 FROM m WHERE c.window_start = m.window_start AND c.window_end = m.window_end AND cost < most);

-- Not broadcast, since it matters which of its rows have partners: the users from 30 s on meet nobody.
SELECT m.window_start, most, tag FROM c FULL JOIN m
ON c.window_start = m.window_start AND c.window_end = m.window_end AND cost = most;

-- Who called most often, as in query 5 of NEXMark: both sides are results.
WITH n AS (SELECT window_start, window_end, caller, COUNT(*) AS n FROM c GROUP BY window_start, window_end, caller)
SELECT n.window_start, caller, n FROM n
JOIN (SELECT window_start, window_end, MAX(n) AS most FROM n GROUP BY window_start, window_end) AS m
ON n.window_start = m.window_start AND n.window_end = m.window_end AND n >= most;

-- The same of windows that overlap, whose bounds have other names.
CREATE VIEW h AS SELECT caller, COUNT(*) AS n, window_start AS s, window_end AS e
FROM TABLE(HOP(TABLE calls, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '10' SECOND))
GROUP BY caller, window_start, window_end;
SELECT h.s, caller, n FROM h
JOIN (SELECT MAX(n) AS most, s, e FROM h GROUP BY s, e) AS m ON h.s = m.s AND h.e = m.e AND n >= most;

-- Within an interval of the end of a window, as in query 7 of NEXMark.
CREATE VIEW w AS SELECT window_end AS e, MAX(level) AS most, COUNT(*) AS n FROM u GROUP BY window_start, window_end;
SELECT w.e, tag, cost, most FROM calls JOIN w
ON cost >= most WHERE ts BETWEEN w.e - INTERVAL '10' SECOND AND w.e;

-- Calls without a partner, too, and with a key: the call at 25 s has none.
SELECT tag, e, n FROM calls LEFT JOIN w ON caller = n AND ts BETWEEN w.e - INTERVAL '10' SECOND AND w.e;

-- 
SELECT tag FROM calls WHERE NOT EXISTS (
    SELECT 1 FROM w WHERE caller < n AND ts BETWEEN w.e - INTERVAL '10' SECOND AND w.e);

-- The small side comes first; of rows that end every five seconds, calls meet those of ten.
CREATE VIEW v AS SELECT window_end AS e, COUNT(*) AS n
FROM TABLE(HOP(TABLE users, DESCRIPTOR(at), INTERVAL '5' SECOND, INTERVAL '10' SECOND))
GROUP BY window_start, window_end;
SELECT e, n, tag FROM v RIGHT JOIN calls ON ts BETWEEN v.e - INTERVAL '10' SECOND AND v.e;
