-- answer: by DuckDB
CREATE TABLE calls (
    ts TIMESTAMP(3), caller BIGINT, cost INT, tag STRING, WATERMARK FOR ts AS ts - INTERVAL '1' MINUTE
) WITH ('connector' = 'file', 'path' = 'data/join_calls.csv', 'format' = 'csv', 'csv.null-literal' = '-');
CREATE TABLE users (
    at TIMESTAMP(3), id INT, level INT, name STRING, WATERMARK FOR at AS at - INTERVAL '1' MINUTE
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

-- At the same time, without another key.
SELECT tag, name FROM calls JOIN users ON ts = at;

-- All that two rows have in common is that they are far apart.
SELECT tag, name FROM calls JOIN users
ON at >= ts + INTERVAL '20' SECOND AND INTERVAL '22' SECOND + ts > at;

-- Results of windows and records.
SELECT w.window_start, w.n, u.name
FROM (
    SELECT window_start, window_end, window_time, COUNT(*) AS n
    FROM TABLE(TUMBLE(TABLE calls, DESCRIPTOR(ts), INTERVAL '10' SECOND))
    GROUP BY window_start, window_end, window_time
) AS w JOIN users AS u
ON u.at BETWEEN w.window_time - INTERVAL '4' SECOND AND w.window_time;

-- A table with itself.
SELECT a.tag, b.tag AS next
FROM calls AS a JOIN calls AS b
ON a.caller = b.caller AND b.ts > a.ts AND b.ts <= a.ts + INTERVAL '7' SECOND;

-- What is given is filtered and grouped.
SELECT name, COUNT(*) AS n, SUM(cost) AS total
FROM calls JOIN users ON caller = id AND at BETWEEN ts - INTERVAL '10' SECOND AND ts
WHERE cost > 1
GROUP BY name;
