-- answer: by DuckDB
CREATE TABLE calls (
    ts TIMESTAMP(3), caller BIGINT, cost INT, tag STRING, WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH ('connector' = 'file', 'path' = 'data/join_calls.csv', 'format' = 'csv', 'csv.null-literal' = '-');
CREATE TABLE users (
    at TIMESTAMP(3), id INT, level INT, name STRING, WATERMARK FOR at AS at
) WITH ('connector' = 'file', 'path' = 'data/join_users.csv', 'format' = 'csv', 'csv.null-literal' = '-');
CREATE VIEW c AS SELECT * FROM TABLE(TUMBLE(TABLE calls, DESCRIPTOR(ts), INTERVAL '10' SECOND));
CREATE VIEW u AS SELECT * FROM TABLE(TUMBLE(TABLE users, DESCRIPTOR(at), INTERVAL '10' SECOND));

-- Keys of different types, NULLs among them; a column of the window of either side.
SELECT c.window_start, caller, tag, name
FROM c JOIN u ON c.caller = u.id AND c.window_start = u.window_start AND c.window_end = u.window_end;

-- A condition beside the key, and the sides in FROM.
SELECT u.window_end, tag, name, cost, level
FROM c, u
WHERE c.window_start = u.window_start AND c.window_end = u.window_end
    AND caller = id AND cost > level AND name <> 'bea';

-- Without a key: all pairs of a window for which the condition holds.
SELECT c.window_start, tag, name FROM c JOIN u ON c.window_start = u.window_start AND c.window_end = u.window_end AND cost < level;

-- Keys that are computed.
SELECT c.window_start, tag, name FROM c JOIN u ON c.window_start = u.window_start AND c.window_end = u.window_end AND caller * 2 = id + 1;

-- NULL is like NULL.
SELECT c.window_start, tag, name FROM c JOIN u ON c.window_start = u.window_start AND c.window_end = u.window_end AND caller IS NOT DISTINCT FROM id;

-- A table with itself.
SELECT x.window_start, x.tag, y.tag AS other
FROM c AS x JOIN c AS y ON x.window_start = y.window_start AND x.caller = y.caller
WHERE x.tag < y.tag;

-- By USING.
SELECT window_start, caller, a.tag, name
FROM (SELECT window_start, window_end, caller, tag FROM c) AS a
JOIN (SELECT window_start, window_end, id AS caller, name FROM u) AS b
USING (window_start, window_end, caller);
