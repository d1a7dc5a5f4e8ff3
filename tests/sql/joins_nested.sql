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
CREATE VIEW per AS
SELECT window_start, window_end, caller, COUNT(*) AS n, SUM(cost) AS total
FROM c GROUP BY window_start, window_end, caller;

-- A grouping and a table.
SELECT u.window_start, caller, n, total, name
FROM per JOIN u ON per.caller = u.id AND per.window_start = u.window_start
    AND per.window_end = u.window_end;

-- Two groupings of the same rows.
SELECT per.window_start, caller, n FROM per
JOIN (SELECT window_start, window_end, MAX(n) AS most FROM per GROUP BY window_start, window_end) AS m
    ON per.window_start = m.window_start AND per.window_end = m.window_end AND n >= most;

-- Three inputs, the third of which meets what the first two give.
SELECT c.window_start, c.tag, u.name, per.n
FROM c JOIN u ON c.caller = u.id AND c.window_start = u.window_start AND c.window_end = u.window_end
JOIN per ON per.window_end = c.window_end AND per.caller = c.caller;

-- 
SELECT c.window_start, c.tag, u.name, per.n
FROM c, u, per
WHERE c.window_end = u.window_end AND per.window_end = u.window_end AND c.caller = u.id
    AND per.n * 10 > level AND c.caller < 3;

-- 
SELECT c.window_start, c.tag, u.name, per.n
FROM c LEFT JOIN u ON c.caller = u.id AND c.window_start = u.window_start AND c.window_end = u.window_end
LEFT JOIN per ON per.window_end = c.window_end AND per.caller = u.id;

-- Grouped by the window of the join.
SELECT c.window_start, name, COUNT(*) AS n, SUM(cost) AS cost
FROM c JOIN u ON c.caller = u.id AND c.window_start = u.window_start AND c.window_end = u.window_end
GROUP BY c.window_start, c.window_end, name;

-- Grouped by the window of either side.
SELECT window_start, COUNT(*) AS n, COUNT(tag) AS tags, COUNT(name) AS names FROM (
    SELECT COALESCE(c.window_start, u.window_start) AS window_start,
           COALESCE(u.window_end, c.window_end) AS window_end, tag, name
    FROM c FULL JOIN u ON c.caller = u.id AND c.window_start = u.window_start AND c.window_end = u.window_end
) GROUP BY window_start, window_end;

-- Two subqueries, of which one groups.
SELECT window_start, tag FROM c
WHERE EXISTS (SELECT 1 FROM u WHERE u.window_start = c.window_start AND u.window_end = c.window_end AND u.id = c.caller)
    AND cost IN (
        SELECT most FROM (
            SELECT window_start, window_end, MAX(cost) AS most FROM c GROUP BY window_start, window_end
        ) AS m
        WHERE m.window_end = c.window_end
    );

-- By longer windows.
SELECT window_start, COUNT(*) AS n
FROM TABLE(TUMBLE(
    (SELECT c.window_time AS t FROM c JOIN u ON c.caller = u.id AND c.window_start = u.window_start AND c.window_end = u.window_end),
    DESCRIPTOR(t), INTERVAL '20' SECOND))
GROUP BY window_start, window_end;

-- The first rows of each window.
SELECT window_start, tag, name, rn FROM (
    SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY tag DESC, name) AS rn
    FROM (SELECT c.window_start, c.window_end, tag, name FROM c JOIN u ON c.caller = u.id AND c.window_start = u.window_start AND c.window_end = u.window_end)
) WHERE rn <= 2;

-- A side that is a union, and a union of joins.
SELECT j.window_start, j.what, name FROM (
    SELECT window_start, window_end, caller, 'many' AS what FROM per WHERE n > 1
    UNION ALL SELECT window_start, window_end, caller, 'one' FROM per WHERE n = 1
) AS j JOIN u ON j.caller = u.id AND j.window_start = u.window_start AND j.window_end = u.window_end;

-- 
SELECT c.window_start, tag, name FROM c JOIN u ON c.caller = u.id AND c.window_start = u.window_start AND c.window_end = u.window_end AND level < 12
UNION ALL
SELECT c.window_start, tag, NULL FROM c WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.window_start = c.window_start AND u.window_end = c.window_end AND u.id = c.caller);
