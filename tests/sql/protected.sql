-- answer: by hand. What a row does not need is not evaluated of it: a FILTER protects its argument, as CASE
-- and AND do, WHERE protects what is selected, HAVING what is computed of the groups it lets through; a
-- computed column is protected like the expression that it stands for; and rows beyond a LIMIT are not
-- looked at.
CREATE TABLE numbers (
    ts TIMESTAMP(3), a BIGINT, b BIGINT,
    quotient AS a / b,
    half AS quotient / 2,
    WATERMARK FOR ts AS ts
) WITH ('connector' = 'file', 'path' = 'data/divisors.csv', 'format' = 'csv');

SELECT COUNT(*) AS n, SUM(10 / (a - 1)) FILTER (WHERE a > 1) AS s, MIN(a / b) FILTER (WHERE b <> 0) AS least,
    COUNT(a / b) FILTER (WHERE b <> 0) AS counted, AVG(a % b) FILTER (WHERE b <> 0 AND a > 0) AS mean,
    SUM(quotient) FILTER (WHERE b <> 0) AS q
FROM numbers;

SELECT a / b AS q, quotient, half FROM numbers LIMIT 2;

SELECT quotient FROM numbers LIMIT 1 OFFSET 1;

SELECT a, quotient FROM numbers WHERE b <> 0 AND quotient > 1;

SELECT a, CASE WHEN b <> 0 THEN half END AS h FROM numbers WHERE a > 5;

SELECT window_start, b, SUM(quotient) AS q
FROM TABLE(TUMBLE(TABLE numbers, DESCRIPTOR(ts), INTERVAL '10' SECOND))
WHERE b <> 0
GROUP BY window_start, window_end, b;

SELECT b, 12 / b AS twelfth, COUNT(*) AS n FROM numbers GROUP BY b HAVING b <> 0;
