-- answer: by hand. Sums and means of decimals are exact: 6.60, 6.60/3 = 2.20; 0.05, 0.05/2 = 0.025. A mean
-- has six digits at least, as in Flink.
CREATE TABLE money (
    ts TIMESTAMP(3), account STRING, amount DECIMAL(10, 2), WATERMARK FOR ts AS ts
) WITH ('connector' = 'file', 'path' = 'data/money.csv', 'format' = 'csv');

SELECT account, COUNT(amount) AS n, SUM(amount) AS total, AVG(amount) AS mean, MIN(amount) AS low,
       MAX(amount) AS high
FROM TABLE(TUMBLE(TABLE money, DESCRIPTOR(ts), INTERVAL '1' MINUTE))
GROUP BY window_start, window_end, account;
