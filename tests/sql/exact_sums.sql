-- answer: by hand. Sums of integers may leave 64 bits on the way, as long as the result does not; sums of
-- doubles are rounded once, at the end: 1e16 + 1 - 1e16 is 1, 1e308 + 1e308 - 1e308 is 1e308, and three
-- times the double nearest 0.1 is 0.3000000000000000166…, whose nearest double prints as 0.30000000000000004
-- (0.3 is 0.299999999999999988…, further away). The mean of 10, 11 and 13 is 34/3.
CREATE TABLE numbers (
    ts TIMESTAMP(3), k STRING, i BIGINT, d DOUBLE, WATERMARK FOR ts AS ts
) WITH ('connector' = 'file', 'path' = 'data/numbers.csv', 'format' = 'csv');

SELECT k, SUM(i) AS si, SUM(d) AS sd
FROM TABLE(TUMBLE(TABLE numbers, DESCRIPTOR(ts), INTERVAL '1' MINUTE))
GROUP BY window_start, window_end, k;

SELECT AVG(i) AS mean
FROM TABLE(TUMBLE(TABLE numbers, DESCRIPTOR(ts), INTERVAL '1' MINUTE))
WHERE k = 'tenth'
GROUP BY window_start, window_end;
