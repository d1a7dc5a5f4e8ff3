-- answer: by hand. In the first window prices are 5, 7, 5, NULL, 9, 7, in the second 1, NULL, 1; of shop a there are 3
-- and 2, of b 3 and 1. Values that are as frequent as others come in their own order.
CREATE TABLE offers (
    ts TIMESTAMP(3), shop STRING, item STRING, price INT, WATERMARK FOR ts AS ts
) WITH ('connector' = 'file', 'path' = 'data/offers.csv', 'format' = 'csv', 'csv.null-literal' = '-');

SELECT window_start, APPROX_TOP_K(price, 2) AS prices, APPROX_TOP_K(price, 10) AS all_prices,
    APPROX_TOP_K(shop, 1) AS shop, APPROX_TOP_K(ROW(shop, price), 2) AS both_columns, APPROX_TOP_K(item, 3) FILTER (WHERE price > 5) AS dear
FROM TABLE(TUMBLE(TABLE offers, DESCRIPTOR(ts), INTERVAL '10' SECOND))
GROUP BY window_start, window_end;

-- Values and counts by themselves, in windows that overlap.
SELECT window_start, prices[1].value AS price, prices[1].count AS n, prices[3].value AS third, CARDINALITY(prices) AS k
FROM (SELECT window_start, APPROX_TOP_K(price, 3) AS prices
    FROM TABLE(HOP(TABLE offers, DESCRIPTOR(ts), INTERVAL '10' SECOND, INTERVAL '20' SECOND))
    GROUP BY window_start, window_end);

-- Of nothing.
SELECT APPROX_TOP_K(price, 3) AS prices FROM offers WHERE price > 100;
