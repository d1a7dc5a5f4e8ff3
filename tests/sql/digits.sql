-- answer: by hand. ROUND and TRUNCATE to more digits than a DOUBLE has change nothing, to fewer than its greatest power of ten
-- leaves 0; whole numbers stay whole, also those of
-- CEIL and FLOOR, which have the argument's type in Flink.
CREATE TABLE pairs (id INT, a TIMESTAMP(3), b TIMESTAMP(6), d DATE)
WITH ('connector' = 'file', 'path' = 'data/time_pairs.csv', 'format' = 'csv');

SELECT id, TRUNCATE(id / 2E0, 400) AS t, ROUND(id / 2E0, 310) AS r, ROUND(id / 2E0, -400) AS zero, TRUNCATE(1e308 * id, 2) > 9e307 AS large,
       TRUNCATE(9007199254740992 + id) AS whole, TRUNCATE(id * 100 + 87, -1) AS tens, ROUND(id * 1.26E0, 1) AS one, TRUNCATE(id * 1.26E0, id - 1) AS own
FROM pairs WHERE id < 4;
SELECT TRUNCATE(1.5E0, 400) AS a, ROUND(-2.5E0, 310) AS b, ROUND(-2.5E0) AS c, TRUNCATE(-2.5E0) AS d, ROUND(CAST(NULL AS DOUBLE), 2) AS e,
       ROUND(2.5E0, CAST(NULL AS INT)) AS f, TO_BASE64('hello') AS g, FROM_BASE64('aGVsbG8=') AS h, TO_BASE64('') AS i,
       STARTSWITH('abc', '') AS j, ENDSWITH('abc', 'bc') AS k
FROM pairs WHERE id = 1;
CREATE VIEW whole AS
SELECT CEIL(9007199254740992 + id) AS a, FLOOR(-9007199254740992 - id) AS b, CEIL(CAST(id AS TINYINT)) AS c, FLOOR(id) AS d,
       CEIL(CAST(id AS SMALLINT)) AS e, FLOOR(CAST(NULL AS INT)) AS f, CEIL(id / 2E0) AS g, FLOOR(CAST(id AS BIGINT UNSIGNED)) AS h,
       ROUND(CAST(1e308 AS DOUBLE), -308) AS i
FROM pairs WHERE id = 1;
DESCRIBE whole;
SELECT * FROM whole;
