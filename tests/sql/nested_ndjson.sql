-- answer: by hand, and by DuckDB.
-- Objects, arrays and maps of NDJSON: fields by name at any depth, in any order, others ignored; what is missing or null
-- is NULL; elements by UNNEST, grouped in windows.
-- exchange: refused
CREATE TABLE orders (
    ts TIMESTAMP(3),
    customer ROW<name STRING, address ROW<city STRING, zip STRING>>,
    lines ARRAY<ROW<sku STRING, n INT, price DECIMAL(8, 2)>>,
    labels MAP<STRING, STRING>,
    scores ARRAY<ARRAY<BIGINT>>,
    WATERMARK FOR ts AS ts
) WITH ('connector' = 'file', 'path' = 'data/orders.ndjson', 'format' = 'ndjson');

-- Fields of fields.
SELECT ts, orders.customer.name AS name, orders.customer.address.city AS city, orders.customer.address.zip AS zip,
       CARDINALITY(lines) AS n, labels['channel'] AS channel
FROM orders;

-- The same values as JSON.
SELECT customer, labels, scores FROM orders WHERE ts < TIMESTAMP '2024-05-01 12:00:12';

-- Elements, and their fields.
SELECT orders.customer.name AS name, sku, n, price, at
FROM orders CROSS JOIN UNNEST(lines) WITH ORDINALITY AS l (sku, n, price, at);

-- Elements in windows. A record whose array is empty or NULL has none.
SELECT window_start, sku, COUNT(*) AS records, SUM(n) AS n, SUM(n * price) AS total
FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '10' SECOND))
CROSS JOIN UNNEST(lines) AS l (sku, n, price)
GROUP BY window_start, window_end, sku;

-- Elements of elements.
SELECT ts, score FROM orders
CROSS JOIN UNNEST(scores) AS s (list) CROSS JOIN UNNEST(s.list) AS t (score);

-- Fields as keys, in windows.
SELECT window_start, orders.customer.address.city AS city, COUNT(*) AS records, MAX(CARDINALITY(scores)) AS most
FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '10' SECOND))
GROUP BY window_start, window_end, orders.customer.address.city;
