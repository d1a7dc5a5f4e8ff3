-- answer: by hand. A name that WITH gives within a query hides what has that name around it: another WITH, a
-- view, the table. What stands beside the inner query, or behind it, means the outer one.
-- exchange: refused
CREATE TABLE t (a BIGINT, b BIGINT) WITH ('connector' = 'file', 'path' = 'data/with_names.csv', 'format' = 'csv');
CREATE VIEW v AS SELECT a + 1000 AS a FROM t;

WITH x AS (SELECT a FROM t) SELECT a FROM (WITH x AS (SELECT a + 10 AS a FROM t) SELECT a FROM x) AS y;

WITH x AS (SELECT a FROM t), y AS (WITH x AS (SELECT a + 10 AS a FROM x) SELECT x.a FROM x)
SELECT a FROM y UNION ALL SELECT x.a + 100 FROM x;

WITH x AS (SELECT a FROM t)
SELECT a FROM (WITH x AS (SELECT a + 10 AS a FROM x), z AS (WITH x AS (SELECT a * 2 AS a FROM x) SELECT a FROM x)
    SELECT a FROM x UNION ALL SELECT a FROM z) AS y
UNION ALL SELECT a FROM x;

WITH t AS (SELECT a + 10 AS a FROM t) SELECT t.a FROM t;

WITH v AS (SELECT a FROM v) SELECT a FROM (WITH v AS (SELECT a + 1 AS a FROM v) SELECT v.a FROM v) AS y;

WITH x AS (SELECT a FROM t) SELECT q.a FROM (WITH x AS (SELECT b AS a FROM t) SELECT a FROM x AS p) AS q;

-- A name is given once to each column of a result, and those that are written stay.
SELECT a, a, a AS a1, b, a FROM t;
