-- answer: by DuckDB
-- exchange: refused
CREATE TABLE calls (
    ts TIMESTAMP(3), caller BIGINT, cost INT, tag STRING, WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH ('connector' = 'file', 'path' = 'data/join_calls.csv', 'format' = 'csv', 'csv.null-literal' = '-');
CREATE TABLE users (
    at TIMESTAMP(3), id INT, level INT, name STRING, WATERMARK FOR at AS at
) WITH ('connector' = 'file', 'path' = 'data/join_users.csv', 'format' = 'csv', 'csv.null-literal' = '-');
CREATE VIEW ch AS SELECT *
FROM TABLE(HOP(TABLE calls, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '10' SECOND));
CREATE VIEW uh AS SELECT *
FROM TABLE(HOP(TABLE users, DESCRIPTOR(at), INTERVAL '5' SECOND, INTERVAL '10' SECOND));
CREATE VIEW cc AS SELECT *
FROM TABLE(CUMULATE(TABLE calls, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '20' SECOND));
CREATE VIEW uc AS SELECT *
FROM TABLE(CUMULATE(TABLE users, DESCRIPTOR(at), INTERVAL '5' SECOND, INTERVAL '20' SECOND));
CREATE VIEW cs AS SELECT window_start, window_end, window_time, caller, COUNT(*) AS n
FROM TABLE(SESSION(TABLE calls PARTITION BY caller, DESCRIPTOR(ts), INTERVAL '5' SECOND))
GROUP BY window_start, window_end, window_time, caller;
CREATE VIEW every AS SELECT window_start, window_end, COUNT(*) AS n, MAX(cost) AS most
FROM TABLE(SESSION(TABLE calls, DESCRIPTOR(ts), INTERVAL '5' SECOND))
GROUP BY window_start, window_end;
CREATE VIEW us AS SELECT window_start, window_end, window_time, id, COUNT(*) AS n
FROM TABLE(SESSION(TABLE users PARTITION BY id, DESCRIPTOR(at), INTERVAL '5' SECOND))
GROUP BY window_start, window_end, window_time, id;

-- A pair is in each window that both are in.
SELECT ch.window_start, tag, name
FROM ch JOIN uh ON caller = id AND ch.window_start = uh.window_start AND ch.window_end = uh.window_end;

-- A table and a grouping by the same windows.
SELECT ch.window_end, tag, n FROM ch
LEFT JOIN (
    SELECT window_start, window_end, id, COUNT(*) AS n FROM uh GROUP BY window_start, window_end, id
) AS u ON caller = id AND ch.window_end = u.window_end
WHERE ch.window_start >= TIMESTAMP '2024-01-01 00:00:00';

-- Two groupings, of which one groups the windows of the other again.
WITH n AS (SELECT window_start, window_end, id, COUNT(*) AS n FROM uh GROUP BY window_start, window_end, id)
SELECT n.window_start, id, n FROM n
JOIN (SELECT window_start, window_end, MAX(n) AS most FROM n GROUP BY window_start, window_end) AS m
    ON n.window_start = m.window_start AND n.window_end = m.window_end AND n >= most;

-- 
SELECT cc.window_start, cc.window_end, tag, name
FROM cc JOIN uc ON caller = id AND cc.window_start = uc.window_start AND cc.window_end = uc.window_end;

-- Sessions with the same bounds: each begins and ends with the other.
SELECT cs.window_start, cs.window_end, caller, every.n, most
FROM cs JOIN every ON cs.window_start = every.window_start AND cs.window_end = every.window_end;

-- With a key, and rows that have no partner.
SELECT cs.window_start, cs.window_end, caller, cs.n, us.n AS of_user
FROM cs LEFT JOIN us
    ON cs.window_start = us.window_start AND cs.window_end = us.window_end AND caller = id;

-- By windows over their ends.
SELECT window_start, COUNT(*) AS n
FROM TABLE(TUMBLE(
    (SELECT cs.window_time AS t FROM cs JOIN every
     ON cs.window_start = every.window_start AND cs.window_end = every.window_end),
    DESCRIPTOR(t), INTERVAL '7' SECOND))
GROUP BY window_start, window_end;
