-- answer: by hand. Only what follows the escape character stands for itself; a backslash is an ordinary character
-- where another one escapes.
CREATE TABLE texts (id INT, s STRING) WITH ('connector' = 'file', 'path' = 'data/patterns.csv', 'format' = 'csv');

SELECT id, s LIKE '100!%' ESCAPE '!' AS percent, s LIKE '%!_%' ESCAPE '!' AS underscore, s LIKE '%!!' ESCAPE '!' AS itself,
       s LIKE '%\%' ESCAPE '!' AS backslash, s NOT LIKE 'A$_%' ESCAPE '$' AS other, s ILIKE 'A$_%' ESCAPE '$' AS upper
FROM texts;
