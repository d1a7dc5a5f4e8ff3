-- answer: by hand, from Flink's SqlFunctionUtils (lpad, rpad, overlay, chr, splitIndex, replace), StringCallGen and its
-- documentation: a negative length or nothing to fill with gives NULL, a start outside the text changes nothing. OVERLAY
-- with a length of 0 keeps the rest, as in the SQL standard (docs/flink-differences.md).
CREATE TABLE texts (id INT, s STRING, n BIGINT) WITH ('connector' = 'file', 'path' = 'data/text_edges.csv', 'format' = 'csv');

SELECT id, LPAD(s, n, 'xy') AS l, RPAD(s, n, 'xy') AS r, LPAD(s, 7, '') AS no_filling, RPAD(s, 7, 'é') AS wide, LPAD(s, n) AS spaces
FROM texts WHERE n IS NULL OR n < 100;
SELECT id, OVERLAY(s PLACING '__' FROM n) AS own_length, OVERLAY(s PLACING '__' FROM 2 FOR n) AS n_chars,
       OVERLAY(s PLACING '' FROM n FOR 1) AS removed, REPEAT(s, n) AS repeated
FROM texts WHERE n IS NULL OR n < 100;
SELECT CHR(97) AS a, CHR(353) AS b, CHR(-1) AS c, CHR(233) AS d, ASCII(CHR(256)) AS e, ASCII('') AS f, ASCII('abc') AS g,
       REPLACE('abc', '', '-') AS h, REPLACE('aXbX', 'X', '') AS i, REVERSE('日本') AS j, REVERSE('') AS k, REPEAT('ab', 0) AS l,
       OVERLAY('abc' PLACING 'x' FROM 3 FOR 9223372036854775807) AS m, INITCAP('hELLO wORLD 1st') AS n
FROM texts WHERE id = 1;
SELECT SPLIT_INDEX('a,b,,c', ',', 2) AS a, SPLIT_INDEX('a,b', ',', 2) AS b, SPLIT_INDEX('a,b', ',', -1) AS c, SPLIT_INDEX('', ',', 0) AS d,
       SPLIT_INDEX('a b  c', '', 1) AS e, SPLIT_INDEX('a b  c', '', 2) AS f, SPLIT_INDEX('a,b', 44, 1) AS g, SPLIT_INDEX('a,b', 256, 0) AS h,
       SPLIT_INDEX('a--b', '--', 1) AS i, SPLIT_INDEX('a,', ',', 1) AS j, SPLIT_INDEX(s, 'l', 2) AS k, SPLIT_INDEX(s, 'x', 0) AS l
FROM texts WHERE id IN (1, 7);
