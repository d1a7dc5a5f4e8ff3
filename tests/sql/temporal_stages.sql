-- answer: by hand, from temporal.
-- exchange: refused
CREATE TABLE rates (
    ts TIMESTAMP(3), currency STRING, rate INT, WATERMARK FOR ts AS ts - INTERVAL '10' SECOND,
    CONSTRAINT of_currency PRIMARY KEY (currency) NOT ENFORCED
) WITH ('connector' = 'file', 'path' = 'data/rates.csv', 'format' = 'csv', 'csv.null-literal' = '-');
CREATE TABLE names (
    ts TIMESTAMP(6), code STRING PRIMARY KEY NOT ENFORCED, name STRING, WATERMARK FOR ts AS ts
) WITH ('connector' = 'file', 'path' = 'data/currency_names.csv', 'format' = 'csv');
CREATE TABLE orders (
    ts TIMESTAMP(3), id INT, currency STRING, amount INT, WATERMARK FOR ts AS ts - INTERVAL '15' SECOND
) WITH ('connector' = 'file', 'path' = 'data/rated_orders.csv', 'format' = 'csv', 'csv.null-literal' = '-');

-- What is given has the order's time.
CREATE VIEW priced AS
    SELECT o.ts, o.currency, amount * rate AS cost FROM orders AS o
    JOIN rates FOR SYSTEM_TIME AS OF o.ts AS r ON o.currency = r.currency;
SELECT window_start, currency, COUNT(*) AS n, SUM(cost) AS cost
FROM TABLE(TUMBLE(TABLE priced, DESCRIPTOR(ts), INTERVAL '10' SECOND))
GROUP BY window_start, window_end, currency;

-- The results of windows have times, too.
SELECT at, w.currency, amount, rate FROM
    (SELECT window_time AS at, currency, SUM(amount) AS amount
     FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '10' SECOND))
     GROUP BY window_start, window_end, window_time, currency) AS w
LEFT JOIN rates FOR SYSTEM_TIME AS OF w.at AS r ON w.currency = r.currency;

-- Versions as a view of the last row of each key, as Flink's queries have them.
CREATE VIEW lasts AS
    SELECT k, kind, rate FROM (
        SELECT *, currency AS k, 'last' AS kind, ROW_NUMBER() OVER (PARTITION BY currency ORDER BY ts DESC) AS rn
        FROM (SELECT ts, currency, rate FROM rates WHERE rate <> 102))
    WHERE rn = 1;
SELECT id, kind, rate FROM orders AS o
LEFT JOIN lasts FOR SYSTEM_TIME AS OF o.ts AS r ON o.currency = r.k AND rate < 115 WHERE id < 12;

-- One behind the other. The versions of a view are its rows.
CREATE VIEW short AS SELECT code, UPPER(name) AS name FROM names WHERE name <> 'buck';
SELECT id, rate, name FROM orders AS o
JOIN rates FOR SYSTEM_TIME AS OF o.ts AS r ON o.currency = r.currency
JOIN short FOR SYSTEM_TIME AS OF o.ts AS n ON n.code = o.currency;
