-- answer: by hand. Of rows that a window has fired, whose counts are 3, 3, 2 and 1. Of several types.
-- exchange: refused
CREATE TABLE offers (
    ts TIMESTAMP(3), shop STRING, item STRING, price INT, WATERMARK FOR ts AS ts
) WITH ('connector' = 'file', 'path' = 'data/offers.csv', 'format' = 'csv', 'csv.null-literal' = '-');

SELECT APPROX_TOP_K(n, 2) AS counts, APPROX_TOP_K(n = 2, 2) AS twos, APPROX_TOP_K(CAST(n AS DOUBLE) * 0, 2) AS zeros,
    APPROX_TOP_K(CAST(n AS DECIMAL(20, 1)), 1) AS decimals, APPROX_TOP_K(window_start, 1) AS starts,
    APPROX_TOP_K(ARRAY[shop, 'c'], 1) AS lists
FROM (SELECT window_start, shop, COUNT(*) AS n
    FROM TABLE(TUMBLE(TABLE offers, DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY window_start, window_end, shop);
