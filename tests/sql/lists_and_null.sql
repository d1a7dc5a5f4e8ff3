-- answer: by hand. Of NULL nobody knows whether it is in a list, nor of 3 whether it is in (1, NULL): not TRUE, and not
-- FALSE under NOT. So two lists of one column are not one list.
-- exchange: refused
CREATE TABLE t (ts TIMESTAMP(3), i INT, s STRING, WATERMARK FOR ts AS ts)
WITH ('connector' = 'file', 'path' = 'data/lists_and_null.csv', 'format' = 'csv');

SELECT i FROM t WHERE i NOT IN (1) OR i NOT IN (2);

SELECT i FROM t WHERE NOT (i IN (1) AND i IN (2));

SELECT i FROM t WHERE NOT (i IN (1, NULL) AND i NOT IN (2));

SELECT i FROM t WHERE NOT ((i = 1 OR i = 2) AND (3 = i OR i = 4));

SELECT s FROM t WHERE s NOT IN ('a') OR s NOT IN ('b', 'c');

-- TRUE and FALSE where they are known.
SELECT i, i IN (1) AND i IN (2) AS a, i NOT IN (1) OR i NOT IN (2) AS b, i IN (1, 2) AND i NOT IN (1, 2) AS c,
       s IN ('a') AND s IN ('b') AS d, i IN (1, NULL) AND i IN (1, 2) AS e, i = 1 OR i IN (2) OR i = 3 AS f
FROM t;

SELECT COUNT(*) AS n, COUNT(*) FILTER (WHERE i NOT IN (1) OR i NOT IN (2)) AS f
FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) GROUP BY window_start, window_end;

SELECT MAX(i) AS m FROM t GROUP BY s HAVING MAX(i) NOT IN (1) OR MAX(i) NOT IN (2);

SELECT i, CASE WHEN i NOT IN (1) OR i NOT IN (2) THEN 'x' ELSE 'y' END AS c FROM t;

SELECT a.i AS a, b.i AS b FROM t AS a JOIN t AS b ON a.i = 1 AND (b.i NOT IN (1) OR b.i NOT IN (2));
