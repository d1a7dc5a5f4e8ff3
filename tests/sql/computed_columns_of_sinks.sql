-- answer: by hand. Computed columns of a table are not written: a query has a column for each of the others.
-- outputs: bids
CREATE TABLE bids (kind INT, price BIGINT, ts TIMESTAMP(3), cents AS price * 100, late AS ts + INTERVAL '1' SECOND, WATERMARK FOR ts AS ts)
WITH ('connector' = 'file', 'path' = 'bids', 'format' = 'csv', 'csv.header' = 'false');
INSERT INTO bids SELECT 1, CAST(2 AS BIGINT), TIMESTAMP '2024-01-01 00:00:00';
INSERT INTO bids (price, kind) VALUES (3, 4);
