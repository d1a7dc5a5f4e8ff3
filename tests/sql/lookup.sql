-- answer: by hand. Matches of one record stand in the order of the file.
-- exchange: refused
CREATE TABLE clicks (
    ts TIMESTAMP(3), user_name STRING, kind STRING, cost INT, proc AS PROCTIME(), WATERMARK FOR ts AS ts
) WITH ('connector' = 'file', 'path' = 'data/clicks.csv', 'format' = 'csv');
CREATE TABLE side (cost BIGINT, label STRING, least INT, who STRING)
WITH ('connector' = 'file', 'path' = 'data/side_costs.csv', 'format' = 'csv');
CREATE TABLE doubles (cost DOUBLE, label STRING)
WITH ('connector' = 'file', 'path' = 'data/side_costs.csv', 'format' = 'csv');
CREATE VIEW large AS SELECT UPPER(label) AS l, cost + 1 AS more FROM side WHERE cost > 2;

-- Keys of different types. NULL equals nothing.
SELECT user_name, c.cost, label FROM clicks AS c
JOIN side FOR SYSTEM_TIME AS OF c.proc AS s ON c.cost = s.cost;

-- Records that nothing matches stay; a further condition is part of the match.
SELECT user_name, c.cost, label FROM clicks AS c
LEFT JOIN side FOR SYSTEM_TIME AS OF c.proc AS s ON c.cost = s.cost AND s.who = c.user_name;

-- A key that is computed, and one that is a DOUBLE.
SELECT c.cost, label FROM clicks AS c
JOIN doubles FOR SYSTEM_TIME AS OF c.proc AS s ON MOD(c.cost, 5) = s.cost;

-- Texts.
SELECT c.cost, label FROM clicks AS c
JOIN side FOR SYSTEM_TIME AS OF c.proc AS s ON who = user_name WHERE c.cost > 6;

-- Several in one query.
SELECT user_name, a.label, b.label AS other FROM clicks AS c
JOIN side FOR SYSTEM_TIME AS OF c.proc AS a ON c.cost = a.cost
LEFT JOIN side FOR SYSTEM_TIME AS OF c.proc AS b ON a.label = b.label AND b.least > 0;

-- NULL equals NULL.
SELECT user_name, label FROM clicks AS c
JOIN side FOR SYSTEM_TIME AS OF c.proc AS s ON c.cost IS NOT DISTINCT FROM s.cost;

-- No equality: each record meets all rows.
SELECT c.cost, label FROM clicks AS c
JOIN side FOR SYSTEM_TIME AS OF c.proc AS s ON c.cost < s.least;

-- A view of the table, and a condition on what comes of it.
SELECT user_name, l FROM clicks AS c
JOIN large FOR SYSTEM_TIME AS OF c.proc AS s ON c.cost + 1 = more WHERE l <> 'DREI';

-- A time that the query adds; and records without a match alone.
SELECT user_name, c.cost FROM (SELECT *, PROCTIME() AS p FROM clicks) AS c
LEFT JOIN side FOR SYSTEM_TIME AS OF c.p AS s ON c.cost = s.cost WHERE label IS NULL;

-- Both queries of a UNION ALL: of each record the rows of the first query first.
SELECT c.who, label FROM
    (SELECT cost, user_name AS who, proc FROM clicks UNION ALL SELECT cost + 1, kind, proc FROM clicks) AS c
JOIN side FOR SYSTEM_TIME AS OF c.proc AS s ON c.cost = s.cost WHERE label IN ('one', 'three', 'eight');

-- Elements of arrays.
SELECT user_name, x, label FROM clicks AS c CROSS JOIN UNNEST(ARRAY[cost, 3]) AS u (x)
JOIN side FOR SYSTEM_TIME AS OF c.proc AS s ON x = s.cost WHERE c.cost < 3;

SELECT COUNT(*) AS n, COUNT(label) AS labels, SUM(least) AS least FROM clicks AS c
LEFT JOIN side FOR SYSTEM_TIME AS OF c.proc AS s ON c.cost = s.cost;
