-- answer: by hand. As in Flink's BinaryStringDataUtil.toInt, a text may have digits after its point, which do not count,
-- and Java's Double.toString has an exponent below 0.001 and from 10,000,000 on.
CREATE TABLE casts (id INT, s STRING, d DOUBLE)
WITH ('connector' = 'file', 'path' = 'data/casts_of_numbers.csv', 'format' = 'csv');

SELECT id, TRY_CAST(s AS INT) AS i, TRY_CAST(s AS TINYINT) AS t, TRY_CAST(s AS BIGINT) AS b,
       CAST(d AS STRING) AS d, CAST(CAST(d AS FLOAT) AS STRING) AS f, 'd' || d AS joined
FROM casts;
-- Whatever is the same number is one group, and equals that number.
SELECT CAST(s AS INT) AS i, COUNT(*) AS n FROM casts WHERE id < 5 GROUP BY CAST(s AS INT);
SELECT id FROM casts WHERE TRY_CAST(s AS INT) = 12;
SELECT CAST('12.7' AS INT) AS a, CAST('-12.9' AS BIGINT) AS b, CAST(1E10 AS STRING) AS c, CAST(-1E0 / 0 AS STRING) AS d,
       TRY_CAST('1e3' AS INT) AS e, CAST('12.7' AS INT) + 1 AS f;
