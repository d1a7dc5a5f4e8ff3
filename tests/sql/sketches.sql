-- answer: by hand. Few different values are counted exactly, and whole numbers up to 256 have buckets
-- of their own. Of 1, 1, 5, 5, 7, 7, 9 half, rounded up, are 4: the median is 5; nine tenths are 7.
CREATE TABLE offers (
    ts TIMESTAMP(3), shop STRING, item STRING, price INT, WATERMARK FOR ts AS ts
) WITH ('connector' = 'file', 'path' = 'data/offers.csv', 'format' = 'csv', 'csv.null-literal' = '-');

SELECT window_start, APPROX_COUNT_DISTINCT(item) AS items, APPROX_COUNT_DISTINCT(price) AS prices,
    APPROX_COUNT_DISTINCT(ROW(shop, price)) AS both_columns,
    APPROX_PERCENTILE(price, 0.5) AS median, APPROX_PERCENTILE(price, 1) AS greatest
FROM TABLE(TUMBLE(TABLE offers, DESCRIPTOR(ts), INTERVAL '10' SECOND))
GROUP BY window_start, window_end;

SELECT APPROX_PERCENTILE(price, 0.5) AS median, APPROX_PERCENTILE(price, 0.9) AS high,
    APPROX_PERCENTILE(price, 0) AS least FROM offers;

-- Of nothing.
SELECT APPROX_COUNT_DISTINCT(item) AS items, APPROX_PERCENTILE(price, 0.5) AS median,
    ARRAY_AGG(price) AS prices, FIRST_VALUE(price) AS f FROM offers WHERE price > 100;
