-- answer: by hand, from the SQL standard: a pattern of SIMILAR TO is of the whole text; % _ | * + ? {} () [] have a
-- meaning, any other character is itself, also . ^ $ and a backslash; ESCAPE takes the meaning away.
CREATE TABLE texts (id INT, s STRING, p STRING) WITH ('connector' = 'file', 'path' = 'data/similar.csv', 'format' = 'csv');

SELECT id, s SIMILAR TO 'b' AS whole, s SIMILAR TO '%b%' AS inside, s NOT SIMILAR TO '(a|b)(_|b)*' AS other,
       s SIMILAR TO 'a!%c' ESCAPE '!' AS percent, s SIMILAR TO '[[:DIGIT:]]{1,3}.5' AS point,
       s SIMILAR TO '%\%' AS backslash, s SIMILAR TO '' AS empty, s SIMILAR TO p AS own,
       'abc' SIMILAR TO p AS constant, s SIMILAR TO NULL AS no_pattern
FROM texts;
SELECT COUNT(*) AS n FROM texts WHERE s SIMILAR TO '[a-c%]+' AND NOT s SIMILAR TO 'b';
SELECT id, s LIKE '%\%' AS plain, s LIKE p AS column_pattern, s LIKE '%' || p AS joined FROM texts WHERE id IN (1, 9);
