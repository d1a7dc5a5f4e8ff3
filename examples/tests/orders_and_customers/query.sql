-- The orders of each hour with their customers' countries, most valuable first.
CREATE TABLE orders (
    placed TIMESTAMP(3), customer BIGINT, price DECIMAL(10, 2), WATERMARK FOR placed AS placed
) WITH ('connector' = 'file', 'follow' = 'true', 'path' = '/var/log/orders.csv', 'format' = 'csv');
CREATE TABLE customers (id BIGINT, country STRING, seen TIMESTAMP(3), WATERMARK FOR seen AS seen)
WITH ('connector' = 'file', 'path' = '/var/lib/customers/*.parquet', 'format' = 'parquet');

CREATE VIEW o AS SELECT * FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(placed), INTERVAL '1' HOUR));
CREATE VIEW c AS SELECT * FROM TABLE(TUMBLE(TABLE customers, DESCRIPTOR(seen), INTERVAL '1' HOUR));

SELECT o.window_start, c.country, o.price
FROM o LEFT JOIN c
ON o.customer = c.id AND o.window_start = c.window_start AND o.window_end = c.window_end
ORDER BY window_start, price DESC;
