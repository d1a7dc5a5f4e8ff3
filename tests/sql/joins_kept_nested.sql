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

-- One within another, which names the query around both.
CREATE TABLE past (
    ts TIMESTAMP(3), caller BIGINT, cost INT, tag STRING
) WITH ('connector' = 'file', 'path' = 'data/join_calls.csv', 'format' = 'csv', 'csv.null-literal' = '-');
CREATE TABLE names (
    at TIMESTAMP(3), id INT, level INT, name STRING
) WITH ('connector' = 'file', 'path' = 'data/join_users.csv', 'format' = 'csv', 'csv.null-literal' = '-');

SELECT p.tag FROM past AS p
WHERE EXISTS (SELECT 1 FROM names AS n
              WHERE EXISTS (SELECT 1 FROM names AS o WHERE o.id = p.caller AND o.level < n.level AND o.name <> n.name))
ORDER BY tag;

-- 
SELECT p.tag FROM past AS p
WHERE EXISTS (SELECT 1 FROM names AS n
              WHERE n.id = p.caller AND n.level IN (SELECT o.level FROM names AS o WHERE o.level > p.cost))
ORDER BY tag;

-- 
SELECT p.tag FROM past AS p
WHERE NOT EXISTS (SELECT 1 FROM names AS n
                  WHERE n.level > 1 AND p.caller IN (SELECT o.id FROM names AS o WHERE o.level > n.level))
ORDER BY tag;

-- 
SELECT p.tag FROM past AS p
WHERE p.caller IN (SELECT n.id FROM names AS n
                   WHERE EXISTS (SELECT 1 FROM past AS q
                                 WHERE q.caller = n.id AND q.tag <> p.tag
                                     AND EXISTS (SELECT 1 FROM names AS o WHERE o.id = n.id AND o.level < p.cost)))
ORDER BY tag;

-- Within windows, which both compare with those of the outermost query.
SELECT c.window_start, c.tag FROM c
WHERE EXISTS (
    SELECT 1 FROM u
    WHERE u.window_start = c.window_start AND u.window_end = c.window_end AND u.level > 1
        AND EXISTS (SELECT 1 FROM c AS d
                    WHERE d.window_start = c.window_start AND d.window_end = c.window_end AND d.caller = u.id
                        AND d.tag <> c.tag)
);
