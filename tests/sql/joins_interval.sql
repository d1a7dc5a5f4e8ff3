-- answer: by DuckDB
CREATE TABLE calls (
    ts TIMESTAMP(3), caller BIGINT, cost INT, tag STRING, WATERMARK FOR ts AS ts - INTERVAL '2' SECOND
) WITH ('connector' = 'file', 'path' = 'data/join_calls.csv', 'format' = 'csv', 'csv.null-literal' = '-');
CREATE TABLE users (
    at TIMESTAMP(3), id INT, level INT, name STRING, WATERMARK FOR at AS at - INTERVAL '2' SECOND
) WITH ('connector' = 'file', 'path' = 'data/join_users.csv', 'format' = 'csv', 'csv.null-literal' = '-');

-- Before, up to the same time.
SELECT tag, name FROM calls JOIN users
ON caller = id AND at BETWEEN ts - INTERVAL '10' SECOND AND ts;

-- Both ways, and more conditions.
SELECT c.ts, u.at, tag, name FROM calls AS c LEFT JOIN users AS u
ON c.caller = u.id AND u.at >= c.ts - INTERVAL '5' SECOND AND u.at < c.ts + INTERVAL '8' SECOND AND cost > level;

-- The right side is kept.
SELECT tag, name, at FROM calls RIGHT JOIN users
ON id = caller AND ts > at AND ts - INTERVAL '6' SECOND <= at;

-- Once each, with and without a partner.
SELECT tag FROM calls WHERE EXISTS (
    SELECT 1 FROM users WHERE id = caller AND at BETWEEN ts - INTERVAL '3' SECOND AND ts + INTERVAL '3' SECOND
);

-- 
SELECT tag FROM calls WHERE NOT EXISTS (
    SELECT 1 FROM users WHERE id = caller AND at BETWEEN ts - INTERVAL '3' SECOND AND ts + INTERVAL '3' SECOND
);

-- So much later, to the millisecond, without another key.
SELECT tag, name FROM calls JOIN users ON ts = at + INTERVAL '1' SECOND;

-- All that two rows have in common is that they are far apart.
SELECT tag, name FROM calls JOIN users
ON at >= ts + INTERVAL '20' SECOND AND INTERVAL '22' SECOND + ts > at;

-- A table with itself.
SELECT a.tag, b.tag AS next
FROM calls AS a JOIN calls AS b
ON a.caller = b.caller AND b.ts > a.ts AND b.ts <= a.ts + INTERVAL '7' SECOND;
