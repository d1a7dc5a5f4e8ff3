-- answer: by hand, from Flink's SqlFunctionUtils (regExp, regexpExtract, regexpReplace), BinaryStringDataUtil (trim, concatWs)
-- and its documentation: an empty pattern matches nothing, the replacement is taken as it is, no such group is NULL.
CREATE TABLE texts (id INT, s STRING, n BIGINT) WITH ('connector' = 'file', 'path' = 'data/text_edges.csv', 'format' = 'csv');

SELECT id, REGEXP(s, 'l+') AS found, REGEXP(s, '') AS nothing, REGEXP_EXTRACT(s, 'h(e)(x)?') AS whole, REGEXP_EXTRACT(s, 'h(e)(x)?', 1) AS one,
       REGEXP_EXTRACT(s, 'h(e)(x)?', 2) AS absent, REGEXP_EXTRACT(s, 'h', n) AS n_group, REGEXP_REPLACE(s, '(l)', '$1\1.') AS replaced,
       REGEXP_REPLACE(s, '', '-') AS between
FROM texts WHERE id IN (1, 2, 3, 6, 7, 9);
SELECT id, CONCAT_WS('-', s, '', 'x') AS joined, CONCAT_WS(s, 'a', 'b') AS by_s, CONCAT_WS('-', s) AS one, CONCAT(s, '') AS plain, s || '' AS bars,
       CHAR_LENGTH(s) AS chars, OCTET_LENGTH(s) AS bytes
FROM texts WHERE id IN (1, 6, 7, 9, 10);
SELECT '[' || TRIM('  a ') || ']' AS a, '[' || TRIM(LEADING ' ' FROM '  a ') || ']' AS b, '[' || TRIM(TRAILING ' ' FROM '  a ') || ']' AS c,
       TRIM(BOTH 'xy' FROM 'xyaxbyx') AS d, TRIM(LEADING 'é' FROM 'ééa') AS e, TRIM(BOTH '' FROM ' a ') AS f, LTRIM('  a') AS g, RTRIM('a  ') AS h,
       TRIM(BOTH CAST(NULL AS STRING) FROM 'a') AS i, UPPER('straße é') AS j, LOWER('É') AS k, TRANSLATE('abcabc', 'abb', 'x') AS l
FROM texts WHERE id = 1;
SELECT COUNT(*) AS n FROM texts WHERE s LIKE '' OR s LIKE 'h%o' OR s LIKE 'h_o';
-- As in Java, \d, \w and \s are of ASCII only.
SELECT REGEXP_REPLACE('١٢3', '\d', '#') AS a, REGEXP_REPLACE('é_a', '\w', '#') AS b, REGEXP_REPLACE('é_a', '[^\W_]', '#') AS c,
       REGEXP('a' || U&'\00A0', '\s') AS d, REGEXP_COUNT('a1 b22', '\d+') AS e, REGEXP_EXTRACT('x٣y4', '\D(\d)', 1) AS f,
       REGEXP_COUNT('abc', '') AS g
FROM texts WHERE id = 1;
-- As in Java, an empty match may stand right behind another; one at the start splits nothing off.
SELECT REGEXP_COUNT('aaa', 'a*') AS a, REGEXP_REPLACE('aaa', 'a*', '-') AS b, REGEXP_REPLACE('abc', 'b*', '-') AS c,
       REGEXP_COUNT('abc', 'b*') AS d, REGEXP_REPLACE('baaac', 'a*', 'X') AS e, REGEXP_REPLACE('é1b', '[0-9]?', '_') AS f,
       STR_TO_MAP('k=v', ',', '=?')['k'] AS g
FROM texts WHERE id = 1;
