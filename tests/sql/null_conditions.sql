-- answer: by hand. A filter lets a row through if all its conditions are TRUE, so those behind one that is
-- NULL are not evaluated: where b is NULL, a may be 0, by which the next condition divides. The same holds
-- for a view and its reader, HAVING, FILTER and WHEN; under NOT, for OR. As a value, NULL AND FALSE is FALSE.
-- exchange: refused
CREATE TABLE numbers (k BIGINT, a BIGINT, b BIGINT)
WITH ('connector' = 'file', 'path' = 'data/null_conditions.csv', 'format' = 'csv');

CREATE VIEW positive AS SELECT a FROM numbers WHERE b > 0;

SELECT a FROM positive WHERE 7 / a > 1;

SELECT k, a FROM numbers WHERE b > 0 AND (k > 0 AND 7 / a > 1);

SELECT k, a FROM numbers WHERE NOT (b <= 0 OR 7 / a <= 1);

SELECT k, a FROM numbers WHERE (b > 0 AND 7 / a > 1) OR a = 0;

SELECT a FROM numbers WHERE a NOT IN (b, 7 / a);

SELECT a FROM numbers WHERE (b > 0 AND 7 / a > 1) IS TRUE;

SELECT COUNT(*) FILTER (WHERE b > 0 AND 7 / a > 1) AS n, SUM(7 / a) FILTER (WHERE b > 0 AND 7 / a > 0) AS s
FROM numbers;

SELECT a, CASE WHEN b > 0 AND 7 / a > 1 THEN 'many' WHEN b > 0 THEN 'few' ELSE 'none' END AS c FROM numbers;

SELECT k, COUNT(*) AS n FROM numbers GROUP BY k HAVING SUM(b) > 0 AND 7 / MAX(a) > 0;

-- What two readers of a table have in common is computed once, as a condition.
SELECT a FROM numbers WHERE (b > 0 AND 7 / a > 1) OR k = 2
UNION ALL
SELECT k + 10 FROM numbers WHERE (b > 0 AND 7 / a > 1) OR k = 1;

SELECT k, a, b > 0 AND a > 0 AS v FROM numbers;
