-- answer: by DuckDB
CREATE TABLE calls (
    ts TIMESTAMP(3), caller BIGINT, cost INT, tag STRING, WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH ('connector' = 'file', 'path' = 'data/join_calls.csv', 'format' = 'csv', 'csv.null-literal' = '-');
CREATE TABLE users (
    at TIMESTAMP(3), id INT, level INT, name STRING, WATERMARK FOR at AS at
) WITH ('connector' = 'file', 'path' = 'data/join_users.csv', 'format' = 'csv', 'csv.null-literal' = '-');
CREATE VIEW c AS SELECT * FROM TABLE(TUMBLE(TABLE calls, DESCRIPTOR(ts), INTERVAL '10' SECOND));
CREATE VIEW u AS SELECT * FROM TABLE(TUMBLE(TABLE users, DESCRIPTOR(at), INTERVAL '10' SECOND));

-- Each row once, however many partners it has.
SELECT window_start, tag FROM c
WHERE EXISTS (SELECT 1 FROM u WHERE u.window_start = c.window_start AND u.window_end = c.window_end AND u.id = c.caller);

-- 
SELECT window_start, tag FROM c
WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.window_start = c.window_start AND u.window_end = c.window_end AND u.id = c.caller AND level > 5)
    AND cost > 10;

-- 
SELECT window_start, name FROM u
WHERE id IN (SELECT caller FROM c WHERE u.window_start = c.window_start AND u.window_end = c.window_end AND cost IS NOT NULL);

-- Without NULLs on either side, NOT IN is like NOT EXISTS.
SELECT window_start, name FROM u
WHERE id IS NOT NULL
    AND id NOT IN (SELECT caller FROM c WHERE u.window_start = c.window_start AND u.window_end = c.window_end AND caller IS NOT NULL);

-- As joins.
SELECT c.window_start, tag FROM c LEFT SEMI JOIN u ON c.caller = u.id AND c.window_start = u.window_start AND c.window_end = u.window_end;

-- 
SELECT c.window_start, tag FROM c LEFT ANTI JOIN u ON c.caller = u.id AND c.window_start = u.window_start AND c.window_end = u.window_end;

-- A table of the query around the subquery is called as a column of the subquery's own table is.
SELECT level.window_start, level.tag FROM c AS level
WHERE EXISTS (SELECT 1 FROM u WHERE u.window_start = level.window_start AND u.window_end = level.window_end AND u.id = level.caller);

-- A grouping of all rows has one row, whatever it reads.
SELECT tag FROM calls WHERE EXISTS (SELECT COUNT(*) FROM users WHERE users.id = calls.caller) AND cost > 12;
SELECT tag AS none FROM calls WHERE NOT EXISTS (SELECT MAX(id) FROM users WHERE users.id = calls.caller LIMIT 1);
SELECT tag AS some FROM c WHERE EXISTS (
    SELECT 1 FROM u WHERE u.window_start = c.window_start AND u.window_end = c.window_end AND u.id = c.caller
    AND EXISTS (SELECT COUNT(*) FROM calls WHERE calls.caller = u.id));
