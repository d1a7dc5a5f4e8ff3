-- answer: by hand. A number with a point is a DECIMAL of the digits that are written, zeros before the point included;
-- one with an exponent is a DOUBLE. The types are Flink's: + has a digit more before the point, * as many digits as both and one, and / max(6, s1 + p2 + 1) digits
-- after it. A constant integer has 10 digits there, a BIGINT 19. Quotients are rounded half away from zero.
CREATE VIEW literals AS
SELECT 1.5 AS a, 0.05 AS b, -12.34 AS c, .5 AS d, 00.50 AS e, 1.5E0 AS f, 2e3 AS g,
       100000000000000000000 AS h, 0.00000000000000000000000000000000000001 AS i;
DESCRIBE literals;
SELECT * FROM literals;

CREATE VIEW computed AS
SELECT 1.5 + 1 AS a, 1.5 + 2.25 AS b, 1.5 * 2 AS c, 1.5 / 2 AS d, 2.0 / 3.0 AS e, -2.0 / 3.0 AS f, 7.5 % 2 AS g,
       MOD(-7.5, 2) AS h, 1.5 * 2E0 AS i, v * 0.5 AS j, w / 4.0 AS k, 1.5 - NULL AS l, 1 / 2 AS m
FROM (VALUES (3, CAST(1 AS TINYINT))) AS t (v, w);
DESCRIBE computed;
SELECT * FROM computed;

-- Of more than 38 digits some after the point are left out, 6 at least are kept.
CREATE VIEW long AS
SELECT x * x AS a, x / x AS b, y * y AS c, x + y AS d, y / x AS e
FROM (VALUES (CAST('123456789.5' AS DECIMAL(38, 10)), CAST('0.5' AS DECIMAL(38, 38)))) AS t (x, y);
DESCRIBE long;
SELECT * FROM long;

-- Rows of VALUES agree, as the branches of CASE do; beside a DOUBLE they are DOUBLEs.
CREATE VIEW branches AS
SELECT a, b, c, d, CASE WHEN a > 1.5 THEN a ELSE 0.125 END AS e, COALESCE(c, 2.5) AS f, IF(a > 2, 1, 2.5) AS g
FROM (VALUES (1.5, 1, 2.5E0, CAST(1E0 AS DECIMAL(30, 15))), (2.25, 2.5, 1.5, 3.5)) AS t (a, b, c, d);
DESCRIBE branches;
SELECT * FROM branches;

-- Texts are compared as numbers, and not made to have as many digits as the number.
SELECT s, s = 1.5 AS same, s > 1.45 AS more, s IN (1.5, 2.25) AS listed, CASE 1.5E0 WHEN 1.5 THEN 'is' END AS c
FROM (VALUES ('1.46'), ('1.50'), ('12.5')) AS t (s);

-- Functions: CEIL and FLOOR have no digits after the point, those of DOUBLEs take decimals as such.
CREATE VIEW functions AS
SELECT CEIL(1.01) AS a, FLOOR(-1.01) AS b, ROUND(2.675, 2) AS c, ABS(-1.5) AS d, POWER(1.5, 2) AS e, SQRT(2.25) AS f,
       GREATEST(1.5, 2, 2.25) AS g, NULLIF(1.5, 1.5) AS h, TRUNCATE(2.675, 2) AS i, CAST(2.5 AS INT) AS j,
       CAST(1.50 AS STRING) AS k, ARRAY[1.5, 2E0][1] AS l, CEIL(9.99) AS m,
       ROUND(2.675, 1 + 1) = 2.68 AS n, ROUND(9.99) AS o, TRUNCATE(-9.99) AS p, ROUND(-155.5, -1) AS q;
DESCRIBE functions;
SELECT * FROM functions;

-- What a CAST leaves out is not compared: 5.7 is 5 as an INT, and 5.75 is 5.8 with one digit.
SELECT d, CAST(d AS INT) <= 5 AS whole, CAST(d AS DECIMAL(3, 1)) = 5.8 AS tenths, CAST(d AS INT) BETWEEN 5 AND 5 AS five
FROM (VALUES (5.75), (5.10), (6.00), (-5.75)) AS t (d) WHERE CAST(d AS BIGINT) <> 6;

-- What is chosen among whole numbers and others has the type of all of them, in arithmetic, too.
SELECT x, (CASE WHEN x > 1 THEN 1 ELSE 0.05 END) * 1.5 AS a, (CASE WHEN x > 1 THEN 1 ELSE 0.05 END) + 1.5 AS b,
       IF(x > 1, 1, 0.25E0) * 1.5 AS c, (CASE WHEN x > 1 THEN 0 ELSE x END) * 0.9 AS d,
       MOD(CASE WHEN x > 1 THEN 1 ELSE 0.25 END, 1) AS e,
       CASE WHEN x > 1 THEN NULL WHEN x > 0.4 THEN 1 ELSE 0.5 END + 0.25 AS f, x % 1 AS g, -x % 1.0 AS h
FROM (VALUES (1.5), (0.5)) AS t (x);

SELECT SUM(CASE WHEN k = 'a' THEN 1 ELSE 0.5 END * p) AS s, SUM(p * (1 - CASE WHEN k = 'b' THEN 0 ELSE 0.05 END)) AS r
FROM (VALUES ('a', 10.00), ('b', 20.00)) AS t (k, p);

-- A DECIMAL of a text has the digits that are written there, unless its type says how many.
CREATE VIEW quoted AS
SELECT DECIMAL '1.5' AS a, NUMERIC '-0.05' AS b, DEC '12' AS c, DECIMAL(5, 2) '1.5' AS d, DECIMAL '007.50' AS e,
       DECIMAL '1.5' * 2 AS f;
DESCRIBE quoted;
SELECT * FROM quoted;

-- Zeros before the point count in arithmetic, too: p2 = 6 and s2 = 5, so the quotient has max(6, 2 + 6 + 1) digits after
-- the point. A number that ends with its point is an integer.
CREATE VIEW zeros AS
SELECT 0.5 AS a, -0.05 AS b, 0.0 AS c, 00.10 AS d, 01.5 AS e, 12. AS f, CAST(7 AS DECIMAL(10, 2)) / 0.00003 AS g,
       - -0.5 AS h, 0.5 * 0.5 AS i
FROM (VALUES (0.25)) AS t (x) WHERE x < 0.5;
DESCRIBE zeros;
SELECT * FROM zeros;

-- What is multiplied on the way to a quotient may have more than 38 digits: the quotient counts.
CREATE VIEW quotients AS
SELECT x / y AS a, 1 / y AS b, y / x AS c
FROM (VALUES (CAST(1 AS DECIMAL(19, 15)), CAST(2 AS DECIMAL(38, 36)))) AS t (x, y);
DESCRIBE quotients;
SELECT * FROM quotients;
