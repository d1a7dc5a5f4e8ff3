-- answer: by DuckDB
-- exchange: refused
CREATE TABLE calls (
    ts TIMESTAMP(3), caller BIGINT, cost INT, tag STRING, WATERMARK FOR ts AS ts - INTERVAL '2' SECOND
) WITH ('connector' = 'file', 'path' = 'data/join_calls.csv', 'format' = 'csv', 'csv.null-literal' = '-');
CREATE TABLE users (
    at TIMESTAMP(3), id INT, level INT, name STRING, WATERMARK FOR at AS at - INTERVAL '2' SECOND
) WITH ('connector' = 'file', 'path' = 'data/join_users.csv', 'format' = 'csv', 'csv.null-literal' = '-');
SET 'join.within' = '5 s';

-- The event times of partners are at most five seconds apart, both ways.
SELECT tag, name FROM calls JOIN users ON caller = id;

-- Both ways, and more conditions.
SELECT tag, name FROM calls LEFT JOIN users ON caller = id AND cost > level;

-- 
SELECT tag, name FROM calls RIGHT JOIN users ON caller = id;

-- Of a table without an end, too, though the rows of a FULL JOIN have no event time.
SELECT tag, name FROM calls FULL JOIN users ON caller = id;

-- 
SELECT tag FROM calls WHERE caller IN (SELECT id FROM users WHERE id IS NOT NULL);

-- 
SELECT tag FROM calls WHERE NOT EXISTS (SELECT 1 FROM users WHERE id = caller);

-- What the condition says one way, the setting says the other way.
SELECT tag, name FROM calls JOIN users ON caller = id AND at < ts;

-- A condition that says both ways stands alone.
SELECT tag, name FROM calls JOIN users
ON caller = id AND at BETWEEN ts - INTERVAL '10' SECOND AND ts;

-- So do windows.
SELECT tag, name
FROM TABLE(TUMBLE(TABLE calls, DESCRIPTOR(ts), INTERVAL '20' SECOND)) AS l
JOIN TABLE(TUMBLE(TABLE users, DESCRIPTOR(at), INTERVAL '20' SECOND)) AS r
ON l.window_start = r.window_start AND l.window_end = r.window_end AND caller = id;

-- Without a limit, where the input ends.
SET 'join.within' = 'none';
SELECT tag, name FROM calls JOIN users ON caller = id;
