-- answer: by hand, from Flink's SqlFunctionUtils.subString, BinaryStringDataUtil.substringSQL, StringCallGen (LEFT, RIGHT)
-- BinaryStringData.indexOf and SqlFunctionUtils.instr: a start below zero counts from the end, zero is one, nothing before the text; a negative
-- length gives NULL; LEFT and RIGHT of nothing or less are empty. Characters are code points: e and a combining accent are two.
CREATE TABLE texts (id INT, s STRING, n BIGINT) WITH ('connector' = 'file', 'path' = 'data/text_edges.csv', 'format' = 'csv');

SELECT id, SUBSTRING(s, n) AS rest, SUBSTR(s, n, 2) AS two, SUBSTRING(s FROM 2 FOR n) AS some, LEFT(s, n) AS l, RIGHT(s, n) AS r
FROM texts;
SELECT id, LOCATE('l', s) AS l, LOCATE('l', s, n) AS later, POSITION('' IN s) AS nothing, INSTR(s, 'lo') AS lo,
       LOCATE('', s, n) AS from_n, LOCATE('z', s) AS z
FROM texts;
SELECT SUBSTRING('hello', -3) AS a, SUBSTRING('hello', 0, 2) AS b, SUBSTRING('hello', 2, 9223372036854775807) AS c,
       SUBSTRING('hello', 2, 0) AS d, SUBSTRING('hello', 2, -1) AS e, SUBSTRING('', -1, -1) AS f,
       SUBSTRING(U&'e\0301x', 2) = U&'\0301x' AS g, CHAR_LENGTH(U&'e\0301x') AS h, RIGHT(U&'xe\0301', 1) = U&'\0301' AS i
FROM texts WHERE id = 1;
-- From a position on, the nth occurrence; backwards from one that counts from the end.
SELECT id, INSTR(s, 'l', n) AS from_n, INSTR(s, 'l', -1) AS last, INSTR(s, 'l', -1, 2) AS last_but_one, INSTR(s, 'l', 1, 2) AS second,
       INSTR(s, 'é', -2) AS e, INSTR(s, '', -1) AS nothing
FROM texts WHERE id IN (1, 2, 3, 6, 7, 9, 10);
SELECT INSTR('abcabc', 'c', -1) AS a, INSTR('abcabc', 'c', -2) AS b, INSTR('abcabc', 'c', 0) AS c, INSTR('aaaa', 'aa', 1, 2) AS d,
       INSTR('aaaa', 'aa', -1, 3) AS e, INSTR('abcabc', 'bc', 3, 1) AS f, INSTR('abcabc', 'c', 1, 3) AS g
FROM texts WHERE id = 1;
