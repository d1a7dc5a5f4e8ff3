-- answer: by hand. NULLs are the smallest, as in Flink: first with ASC, last with DESC. Rows with equal
-- keys come in the order of their columns, from left to right.
CREATE TABLE t (k STRING, v INT, d DECIMAL(6, 2), ts TIMESTAMP(3), s STRING)
WITH ('connector' = 'file', 'path' = 'data/order.csv', 'format' = 'csv');

SELECT k, v FROM t ORDER BY v;

SELECT k, v FROM t ORDER BY v DESC LIMIT 3;

SELECT v, k FROM t ORDER BY v NULLS LAST, k DESC;

SELECT k AS by_time FROM t ORDER BY ts DESC NULLS FIRST, k;

SELECT k AS by_decimal FROM t ORDER BY d DESC;

SELECT k AS by_text FROM t WHERE s IS NOT NULL ORDER BY s DESC LIMIT 2 OFFSET 1;

SELECT k AS by_rest FROM t ORDER BY MOD(v, 2), 1 DESC;

SELECT k AS none FROM t ORDER BY v LIMIT 0;

SELECT v, COUNT(*) AS n FROM t GROUP BY v ORDER BY n DESC, v LIMIT 2;

SELECT v AS hidden FROM t GROUP BY v ORDER BY MAX(k) DESC;

SELECT v, COUNT(*) AS n FROM t GROUP BY v LIMIT 2 OFFSET 1;

SELECT DISTINCT s FROM t ORDER BY s;
