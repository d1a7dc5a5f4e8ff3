-- answer: by hand. 9007199254740993 is 2^53 + 1, which no DOUBLE is: means of it and its neighbours. -1.5 is cut to -1.
-- exchange: refused
-- outputs: plain, more, parts
CREATE TABLE numbers (k STRING, x BIGINT, i INT) WITH ('connector' = 'file', 'format' = 'csv', 'path' = 'data/long_means.csv');
CREATE TABLE plain (k STRING, mean BIGINT) WITH ('connector' = 'file', 'path' = 'plain', 'format' = 'csv', 'csv.header' = 'false');
CREATE TABLE more (k STRING, a BIGINT, b INT, c BIGINT, d BIGINT, e DOUBLE) WITH ('connector' = 'file', 'path' = 'more', 'format' = 'csv', 'csv.header' = 'false');
CREATE TABLE parts (k STRING, mean BIGINT) WITH ('connector' = 'file', 'path' = 'parts', 'format' = 'csv', 'csv.header' = 'false');
INSERT INTO plain SELECT k, AVG(x) FROM numbers GROUP BY k HAVING AVG(x) > -100;
INSERT INTO more SELECT k, -AVG(x), AVG(i) + 1, COALESCE(AVG(x), 0), AVG(i) * 2 - COUNT(*), AVG(i) FROM numbers GROUP BY k;
INSERT INTO parts SELECT k, m FROM (SELECT k, AVG(x) AS m FROM numbers GROUP BY k HAVING COUNT(DISTINCT i) > 1)
    UNION ALL SELECT k, x FROM numbers WHERE i = 4 UNION ALL SELECT k, COUNT(*) FROM numbers GROUP BY k;
