-- answer: by hand. NaN equals NaN and is greater than everything else, also a computed one, whose sign bit is set: x is
-- NaN, NaN, 0, NULL and q is NaN, NaN, 1, 1. The two zeros are equal, and are printed as they are.
-- exchange: refused
CREATE TABLE t (ts TIMESTAMP(3), id INT, d DOUBLE, z DOUBLE, f FLOAT, WATERMARK FOR ts AS ts)
WITH ('connector' = 'file', 'path' = 'data/nan_and_zero.csv', 'format' = 'csv');
CREATE VIEW v AS SELECT *, d - d AS x, z / z AS q FROM t;

SELECT id FROM v WHERE q < 0.5 OR q <> q;

SELECT id FROM v WHERE q > 0.5 AND x >= q;

SELECT id, q = d AS e, q IS NOT DISTINCT FROM d AS s, q IN (CAST('NaN' AS DOUBLE)) AS l, q BETWEEN 0.5 AND d AS b FROM v;

SELECT x, id FROM v ORDER BY x, id;

SELECT z, id FROM v ORDER BY z, id DESC LIMIT 3;

SELECT f, id FROM v ORDER BY f DESC, id LIMIT 3;

SELECT id, GREATEST(x, 1E0) AS g, LEAST(x, 1E0) AS l, LEAST(z, 1E0) AS s, NULLIF(z, 0) AS n, NULLIF(z, 5) AS k,
       CASE z WHEN 0 THEN 'zero' ELSE 'other' END AS c, CASE f WHEN 0 THEN 'zero' ELSE 'other' END AS cf,
       NULLIF(q, d) AS qd, MAP[z, 'a'][-z] AS m
FROM v;

-- Constants.
SELECT 0E0 / 0E0 < 0.5E0 AS a, CASE -0E0 WHEN 0E0 THEN 'zero' END AS b, NULLIF(-0E0, 0E0) AS c,
       0E0 / 0E0 IN (CAST('NaN' AS DOUBLE)) AS d, GREATEST(0E0 / 0E0, 1E0) AS g
FROM v WHERE id = 1;

SELECT id FROM v GROUP BY id HAVING SUM(z) / SUM(z) < 2;

SELECT a.id AS i, b.id AS j FROM v AS a JOIN v AS b ON a.x = b.d;

SELECT a.id AS i, b.id AS j FROM v AS a JOIN v AS b ON a.q > b.d;

SELECT MIN(x) AS lo, MAX(x) AS hi, COUNT(DISTINCT q) AS q, COUNT(DISTINCT z) AS z FROM v;
