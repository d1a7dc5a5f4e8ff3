-- answer: by hand. Users and kinds are texts; costs become BIGINT beside a constant of that type.
-- exchange: refused
CREATE TABLE clicks (
    ts TIMESTAMP(3), user_name STRING, kind STRING, cost INT, WATERMARK FOR ts AS ts
) WITH ('connector' = 'file', 'path' = 'data/clicks.csv', 'format' = 'csv');

SELECT user_name AS who, cost FROM clicks WHERE cost > 6
UNION ALL SELECT kind, cost * 10 FROM clicks WHERE cost > 7
UNION ALL SELECT 'none', NULL FROM clicks WHERE user_name = 'cid'
ORDER BY who, cost;

-- A condition and columns above it, and the same table on both sides.
SELECT who, cost + 1 AS more
FROM (SELECT user_name AS who, cost FROM clicks UNION ALL SELECT kind, 100 + cost FROM clicks)
WHERE cost = 5 OR cost > 107
ORDER BY more DESC;

-- Without ALL each row once.
SELECT kind FROM clicks UNION SELECT user_name FROM clicks ORDER BY kind LIMIT 4 OFFSET 1;

-- A grouping over both: of kinds (5, 3, 1) and users (ann 4, bob 3, cid 2).
SELECT n, COUNT(*) AS names
FROM (SELECT name, COUNT(*) AS n
      FROM (SELECT user_name AS name FROM clicks UNION ALL SELECT kind FROM clicks)
      GROUP BY name)
GROUP BY n ORDER BY n;

SELECT COUNT(*) AS n FROM (SELECT ts FROM clicks UNION ALL SELECT ts FROM clicks WHERE cost > 6);
