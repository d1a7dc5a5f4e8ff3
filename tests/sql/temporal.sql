-- answer: by hand. Each order with the last rate of its currency that is no later; of two rates of one time
-- the later record counts. NULL is no currency.
CREATE TABLE rates (
    ts TIMESTAMP(3), currency STRING, rate INT, WATERMARK FOR ts AS ts - INTERVAL '10' SECOND,
    PRIMARY KEY (currency) NOT ENFORCED
) WITH ('connector' = 'file', 'path' = 'data/rates.csv', 'format' = 'csv', 'csv.null-literal' = '-');
CREATE TABLE orders (
    ts TIMESTAMP(3), id INT, currency STRING, amount INT, WATERMARK FOR ts AS ts - INTERVAL '15' SECOND
) WITH ('connector' = 'file', 'path' = 'data/rated_orders.csv', 'format' = 'csv', 'csv.null-literal' = '-');

SELECT id, o.currency, rate, amount * rate AS cost FROM orders AS o
LEFT JOIN rates FOR SYSTEM_TIME AS OF o.ts AS r ON o.currency = r.currency;

SELECT id, rate, r.ts FROM orders AS o
JOIN rates FOR SYSTEM_TIME AS OF o.ts AS r ON o.currency = r.currency;

-- A further condition is asked of the version that counts, not of those before.
SELECT id, rate FROM orders AS o
JOIN rates FOR SYSTEM_TIME AS OF o.ts AS r ON r.currency = o.currency AND rate <> 102;

SELECT id, rate FROM orders AS o
LEFT JOIN rates FOR SYSTEM_TIME AS OF o.ts AS r ON o.currency = r.currency AND rate > 101 AND id <> 12
WHERE amount < 13;

SELECT id, rate FROM orders AS o
JOIN rates FOR SYSTEM_TIME AS OF o.ts AS r ON o.currency = r.currency WHERE rate <> 102 AND id > 3;
