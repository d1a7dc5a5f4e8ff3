-- A DATE beside a TIMESTAMP: midnight, in the unit of the timestamp, also far from 1970.
-- answer: by hand
CREATE TABLE t (id INT, d DATE, t TIMESTAMP(3))
WITH ('connector' = 'file', 'path' = 'data/dates_and_times.csv', 'format' = 'csv');

SELECT id, d = t AS eq, d < t AS lt, t IS DISTINCT FROM d AS di, d BETWEEN t AND t AS b, d IN (t) AS i,
       t - d AS minus
FROM t;
SELECT id, COALESCE(d, t) AS co, NVL(t, d) AS nv, GREATEST(d, t) AS g, LEAST(t, d) AS l, NULLIF(d, t) AS ni,
       CASE WHEN id = 1 THEN t ELSE d END AS c
FROM t;
SELECT d = t AS eq, COUNT(*) AS n, MAX(COALESCE(d, t)) AS m FROM t GROUP BY d = t;
