-- answer: by DuckDB
-- exchange: refused
CREATE TABLE calls (
    ts TIMESTAMP(3), caller BIGINT, cost INT, tag STRING, WATERMARK FOR ts AS ts - INTERVAL '2' SECOND
) WITH ('connector' = 'file', 'path' = 'data/join_calls.csv', 'format' = 'csv', 'csv.null-literal' = '-');
CREATE TABLE users (
    at TIMESTAMP(3), id INT, level INT, name STRING, WATERMARK FOR at AS at - INTERVAL '2' SECOND
) WITH ('connector' = 'file', 'path' = 'data/join_users.csv', 'format' = 'csv', 'csv.null-literal' = '-');

-- Results of windows and records.
SELECT w.window_start, w.n, u.name
FROM (
    SELECT window_start, window_end, window_time, COUNT(*) AS n
    FROM TABLE(TUMBLE(TABLE calls, DESCRIPTOR(ts), INTERVAL '10' SECOND))
    GROUP BY window_start, window_end, window_time
) AS w JOIN users AS u
ON u.at BETWEEN w.window_time - INTERVAL '4' SECOND AND w.window_time;

-- The end of windows is a millisecond later.
SELECT w.window_end, w.n, u.name
FROM (
    SELECT window_end, COUNT(*) AS n FROM TABLE(TUMBLE(TABLE calls, DESCRIPTOR(ts), INTERVAL '10' SECOND))
    GROUP BY window_start, window_end
) AS w JOIN users AS u
ON u.at BETWEEN w.window_end - INTERVAL '4' SECOND AND w.window_end;

-- What is given is filtered and grouped.
SELECT name, COUNT(*) AS n, SUM(cost) AS total
FROM calls JOIN users ON caller = id AND at BETWEEN ts - INTERVAL '10' SECOND AND ts
WHERE cost > 1
GROUP BY name;

-- Rows of both sides.
SELECT tag, name, ts, at FROM calls FULL JOIN users
ON id = caller AND at BETWEEN ts - INTERVAL '3' SECOND AND ts + INTERVAL '3' SECOND;

-- 
SELECT tag, name FROM calls FULL JOIN users
ON id = caller AND at BETWEEN ts - INTERVAL '3' SECOND AND ts + INTERVAL '3' SECOND
WHERE tag IS NULL OR name <> 'ann';

CREATE VIEW j AS SELECT ts, tag, name, cost FROM calls JOIN users
ON caller = id AND at BETWEEN ts - INTERVAL '10' SECOND AND ts;

-- Windows over what an interval join gives.
SELECT window_start, COUNT(*) AS n, SUM(cost) AS total
FROM TABLE(TUMBLE(TABLE j, DESCRIPTOR(ts), INTERVAL '10' SECOND))
GROUP BY window_start, window_end;

-- Another interval join.
SELECT j.tag, j.name, u.name AS other FROM j JOIN users AS u ON u.at BETWEEN j.ts - INTERVAL '3' SECOND AND j.ts;

-- Records, and results of the windows that end up to ten seconds later.
SELECT tag, w.e, w.n
FROM calls LEFT JOIN (
    SELECT window_end AS e, id, COUNT(*) AS n FROM TABLE(TUMBLE(TABLE users, DESCRIPTOR(at), INTERVAL '10' SECOND))
    GROUP BY window_start, window_end, id
) AS w ON caller = id AND ts BETWEEN w.e - INTERVAL '10' SECOND AND w.e;

-- What an interval join gives, with itself and with results of windows, farther one way than the other. Slices that a
-- row's time has no partner in have fired when it comes.
CREATE VIEW w AS
SELECT window_time AS at, caller, COUNT(*) AS n
FROM TABLE(TUMBLE(TABLE calls, DESCRIPTOR(ts), INTERVAL '3' SECOND))
GROUP BY window_start, window_end, window_time, caller;

-- Without an equality.
SELECT x.at, x.caller, y.at AS other_at, y.caller AS other
FROM w AS x JOIN w AS y ON y.at BETWEEN x.at - INTERVAL '4' SECOND AND x.at + INTERVAL '23' SECOND
ORDER BY at, caller, other_at, other;

SELECT j.tag, j.name, x.at, x.n
FROM j LEFT JOIN w AS x ON x.at BETWEEN j.ts - INTERVAL '1' SECOND AND j.ts + INTERVAL '7.5' SECOND
ORDER BY tag, at;

-- With one.
SELECT x.caller, x.at, y.at AS other_at, y.n
FROM w AS x RIGHT JOIN w AS y
ON x.caller = y.caller AND y.at BETWEEN x.at - INTERVAL '4' SECOND AND x.at + INTERVAL '30' SECOND
ORDER BY other_at, at;
