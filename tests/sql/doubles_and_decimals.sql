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

-- A DOUBLE or a FLOAT is the nearest one, also of more digits than it has: what the text is read as.
CREATE TABLE wide (m DECIMAL(20, 2), d DOUBLE)
WITH ('connector' = 'file', 'path' = 'data/decimals_as_doubles.csv', 'format' = 'csv');

SELECT m, CAST(m AS DOUBLE) AS c, TRY_CAST(m AS DOUBLE) AS t, m = d AS same, m - d AS apart, CAST(m AS FLOAT) AS f
FROM wide ORDER BY m;

SELECT w.m, v.d FROM wide AS w JOIN wide AS v ON w.m = v.d ORDER BY w.m;

SELECT CAST(123456789012345.67 AS DOUBLE) AS a, 123456789012345.67E0 AS b, CAST('123456789012345.67' AS DOUBLE) AS c,
       CAST(9007199254740993.00 AS DOUBLE) AS d, CAST(9007199254740993 AS DOUBLE) AS e,
       CAST(16777217.5 AS FLOAT) AS f, CAST(m AS DOUBLE) = 123456789012345.67E0 AS g
FROM wide WHERE m = 0.3;
