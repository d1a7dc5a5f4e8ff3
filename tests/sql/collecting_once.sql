-- answer: by hand. In the order of event time the offers are
--   window 12:00:00   1 s a x 5, 2 s a z 5, 3 s b v 7, 4 s b y 7, 4 s b w NULL, 6 s a NULL 9
--   window 12:00:10   11 s a q 1, 12 s a r 1, 13 s b NULL NULL
-- Of equal values the first counts; NULL is a value to ARRAY_AGG.
-- exchange: refused
CREATE TABLE offers (
    ts TIMESTAMP(3), shop STRING, item STRING, price INT, WATERMARK FOR ts AS ts - INTERVAL '3' SECOND
) WITH ('connector' = 'file', 'path' = 'data/offers.csv', 'format' = 'csv', 'csv.null-literal' = '-');

SELECT window_start, shop, ARRAY_AGG(DISTINCT price) AS prices, ARRAY_AGG(DISTINCT price) IGNORE NULLS AS given,
    LISTAGG(DISTINCT item) AS items, LISTAGG(DISTINCT CAST(price AS STRING), '-') AS texts, COUNT(DISTINCT price) AS n
FROM TABLE(TUMBLE(TABLE offers, DESCRIPTOR(ts), INTERVAL '10' SECOND))
GROUP BY window_start, window_end, shop;

-- With separators, pairs count once.
SELECT window_start, ARRAY_AGG(DISTINCT shop) AS shops, LISTAGG(DISTINCT shop, item) AS pairs,
    STRING_AGG(DISTINCT shop, '/') AS texts
FROM TABLE(TUMBLE(TABLE offers, DESCRIPTOR(ts), INTERVAL '10' SECOND))
GROUP BY window_start, window_end;

-- In windows that overlap.
SELECT window_start, ARRAY_AGG(DISTINCT shop) AS shops, ARRAY_AGG(DISTINCT price) FILTER (WHERE price < 9) AS low
FROM TABLE(HOP(TABLE offers, DESCRIPTOR(ts), INTERVAL '10' SECOND, INTERVAL '20' SECOND))
GROUP BY window_start, window_end;

-- In sessions: of a from 1 s to 12 s, of b from 3 s to 4 s and at 13 s.
SELECT window_start, window_end, shop, ARRAY_AGG(DISTINCT price) AS prices
FROM TABLE(SESSION(TABLE offers PARTITION BY shop, DESCRIPTOR(ts), INTERVAL '5' SECOND))
GROUP BY window_start, window_end, shop;

-- By several sets of keys.
SELECT window_start, shop, ARRAY_AGG(DISTINCT price) AS prices
FROM TABLE(TUMBLE(TABLE offers, DESCRIPTOR(ts), INTERVAL '10' SECOND))
GROUP BY window_start, window_end, ROLLUP (shop);

-- Without a window, of all records and of none.
SELECT ARRAY_AGG(DISTINCT item) IGNORE NULLS AS items, LISTAGG(DISTINCT shop) AS shops,
    ARRAY_AGG(DISTINCT price) FILTER (WHERE price > 100) AS nothing
FROM offers;

-- There is one zero, and one NaN.
SELECT CARDINALITY(ARRAY_AGG(DISTINCT CAST(t AS DOUBLE))) AS n, ARRAY_AGG(DISTINCT t) AS texts
FROM (VALUES ('-0'), ('0'), ('NaN'), ('1.5'), ('NaN'), ('1.50')) AS v (t);
