-- answer: by DuckDB
-- exchange: refused
CREATE TABLE calls (
    ts TIMESTAMP(3), caller BIGINT, cost INT, tag STRING, WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH ('connector' = 'file', 'path' = 'data/join_calls.csv', 'format' = 'csv', 'csv.null-literal' = '-');
CREATE TABLE users (
    at TIMESTAMP(3), id INT, level INT, name STRING, WATERMARK FOR at AS at
) WITH ('connector' = 'file', 'path' = 'data/join_users.csv', 'format' = 'csv', 'csv.null-literal' = '-');
CREATE VIEW c AS SELECT * FROM TABLE(TUMBLE(TABLE calls, DESCRIPTOR(ts), INTERVAL '10' SECOND));
CREATE VIEW u AS SELECT * FROM TABLE(TUMBLE(TABLE users, DESCRIPTOR(at), INTERVAL '10' SECOND));

-- Tables that end.
SELECT tag, name FROM calls JOIN users ON caller = id AND cost > level;

-- 
SELECT name, COUNT(tag) AS n FROM users LEFT JOIN calls ON caller = id GROUP BY name;

-- An interval of time.
SELECT tag, name FROM calls JOIN users
ON caller = id AND at BETWEEN ts - INTERVAL '10' SECOND AND ts;

-- The greatest, joined back.
SELECT tag, cost FROM calls JOIN (SELECT MAX(cost) AS most FROM calls) ON cost = most;

-- Across windows.
SELECT c.window_start, u.window_start AS other, tag, name
FROM c JOIN u ON caller = id AND c.window_start < u.window_start;

-- 
SELECT COUNT(*) AS n FROM calls CROSS JOIN users;

-- 
SELECT tag FROM calls WHERE NOT EXISTS (SELECT 1 FROM users WHERE id = caller);

-- A join to the right of another one, without brackets.
SELECT a.tag, COUNT(c.tag) AS n
FROM calls AS a LEFT JOIN users AS b JOIN calls AS c ON b.id = c.caller AND c.cost > b.level ON a.caller = b.id AND a.cost < c.cost
GROUP BY a.tag;
