-- answer: by hand, from temporal. Without a delay two rates are late and dropped: EUR of 00:00:03 and GBP of
-- 00:00:09; so is that of NULL, of 00:00:04.
-- counters: records=22 late_records=3
CREATE TABLE rates (
    ts TIMESTAMP(3), currency STRING, rate INT, WATERMARK FOR ts AS ts, PRIMARY KEY (currency) NOT ENFORCED
) WITH ('connector' = 'file', 'path' = 'data/rates.csv', 'format' = 'csv', 'csv.null-literal' = '-');
CREATE TABLE orders (
    ts TIMESTAMP(3), id INT, currency STRING, amount INT, WATERMARK FOR ts AS ts - INTERVAL '15' SECOND
) WITH ('connector' = 'file', 'path' = 'data/rated_orders.csv', 'format' = 'csv', 'csv.null-literal' = '-');

SELECT id, rate FROM orders AS o
LEFT JOIN rates FOR SYSTEM_TIME AS OF o.ts AS r ON o.currency = r.currency;
