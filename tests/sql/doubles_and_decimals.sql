-- answer: by hand. A DECIMAL beside a DOUBLE or a FLOAT is a DOUBLE (as in Flink and DuckDB): 1e-20, 1e30 and NaN
-- stay what they are. NaN is greater than all numbers.
-- exchange: refused
CREATE TABLE floats (d DOUBLE, m DECIMAL(10, 2), f FLOAT)
WITH ('connector' = 'file', 'path' = 'data/floats.csv', 'format' = 'csv');

SELECT d FROM floats UNION ALL SELECT m FROM floats ORDER BY d;

SELECT f FROM floats UNION ALL SELECT m FROM floats ORDER BY f;

-- What stands above a UNION sees its type.
SELECT COALESCE(x, 7.25) AS c, x * 2 AS twice
FROM (SELECT m AS x FROM floats WHERE m > 3 UNION ALL SELECT d FROM floats WHERE m < 2)
ORDER BY c;

SELECT COALESCE(d, m) AS c, IFNULL(m, d) AS i, CASE WHEN m > 2 THEN d ELSE m END AS w,
       GREATEST(d, m) AS g, NULLIF(m, d) AS n, NULLIF(d, m) AS o, COALESCE(f, m) AS fm
FROM floats ORDER BY m;

-- A number with a point is a decimal, one with an exponent a double.
SELECT m, m > 2.25 AS more, COALESCE(m, 0.5) = 2.5 AS same, m > 1e-20 AS tiny, m < 1e30 AS huge
FROM floats ORDER BY m;

SELECT m, d > m AS more, d IN (0.0, 2.5) AS listed, d BETWEEN 0.0 AND m AS between_
FROM floats ORDER BY m;
