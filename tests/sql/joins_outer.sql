-- answer: by DuckDB
CREATE TABLE calls (
    ts TIMESTAMP(3), caller BIGINT, cost INT, tag STRING, WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH ('connector' = 'file', 'path' = 'data/join_calls.csv', 'format' = 'csv', 'csv.null-literal' = '-');
CREATE TABLE users (
    at TIMESTAMP(3), id INT, level INT, name STRING, WATERMARK FOR at AS at
) WITH ('connector' = 'file', 'path' = 'data/join_users.csv', 'format' = 'csv', 'csv.null-literal' = '-');
CREATE VIEW c AS SELECT * FROM TABLE(TUMBLE(TABLE calls, DESCRIPTOR(ts), INTERVAL '10' SECOND));
CREATE VIEW u AS SELECT * FROM TABLE(TUMBLE(TABLE users, DESCRIPTOR(at), INTERVAL '10' SECOND));

-- What is not there is NULL, the window of that side, too.
SELECT c.window_start, caller, tag, name, u.window_end AS its_end
FROM c LEFT JOIN u ON c.caller = u.id AND c.window_start = u.window_start AND c.window_end = u.window_end;

-- A condition of ON is asked before rows are padded, one of WHERE after.
SELECT c.window_start, tag, name
FROM c LEFT JOIN u ON c.caller = u.id AND c.window_start = u.window_start AND c.window_end = u.window_end AND level > 10 AND cost > 5
WHERE level IS NULL OR name <> 'bea';

-- A condition on the left side alone keeps its rows.
SELECT c.window_start, tag, name
FROM c LEFT JOIN u ON c.caller = u.id AND c.window_start = u.window_start AND c.window_end = u.window_end AND tag > 'a' AND 100 / cost > 6
WHERE tag <> 'i';

-- Rows of the right side.
SELECT u.window_start, tag, name, level
FROM c RIGHT JOIN u ON c.caller = u.id AND c.window_start = u.window_start AND c.window_end = u.window_end AND cost > level;

-- Rows of both.
SELECT COALESCE(c.window_start, u.window_start) AS window_start, tag, name
FROM c FULL JOIN u ON c.caller = u.id AND c.window_start = u.window_start AND c.window_end = u.window_end;

-- Without a key.
SELECT c.window_start, tag, name FROM c LEFT JOIN u ON c.window_start = u.window_start AND c.window_end = u.window_end AND cost * 2 < level;
