-- answer: by hand. WHERE and HAVING on decimals, a decimal as a key and in an expression.
CREATE TABLE money (
    ts TIMESTAMP(3), account STRING, amount DECIMAL(10, 2), WATERMARK FOR ts AS ts
) WITH ('connector' = 'file', 'path' = 'data/money.csv', 'format' = 'csv');

SELECT amount, COUNT(*) AS n, SUM(amount + amount) AS twice
FROM TABLE(TUMBLE(TABLE money, DESCRIPTOR(ts), INTERVAL '1' MINUTE))
WHERE amount > 0.10 OR amount IS NULL
GROUP BY window_start, window_end, amount
HAVING COUNT(*) > 1 OR amount < 3.30;
