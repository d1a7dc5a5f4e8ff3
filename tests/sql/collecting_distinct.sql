-- answer: by hand. In the order of event time the offers are
--   window 12:00:00   1 s a x 5, 2 s a z 5, 3 s b v 7, 4 s b y 7, 4 s b w NULL, 6 s a NULL 9
--   window 12:00:10   11 s a q 1, 12 s a r 1, 13 s b NULL NULL
-- exchange: refused
CREATE TABLE offers (
    ts TIMESTAMP(3), shop STRING, item STRING, price INT, WATERMARK FOR ts AS ts - INTERVAL '3' SECOND
) WITH ('connector' = 'file', 'path' = 'data/offers.csv', 'format' = 'csv', 'csv.null-literal' = '-');

-- Lists and the like beside aggregates of distinct values.
SELECT window_start, shop, COUNT(DISTINCT price) AS prices, SUM(DISTINCT price) AS total,
    ARRAY_AGG(price) AS listed, ARRAY_AGG(item) IGNORE NULLS AS items, LISTAGG(item) AS texts,
    FIRST_VALUE(item) AS f, LAST_VALUE(item) RESPECT NULLS AS l, MAX_BY(item, price) AS dear
FROM TABLE(TUMBLE(TABLE offers, DESCRIPTOR(ts), INTERVAL '10' SECOND))
GROUP BY window_start, window_end, shop;

-- Rows, estimates and filters.
SELECT window_start, COUNT(DISTINCT shop) FILTER (WHERE price > 5) AS shops, APPROX_COUNT_DISTINCT(item) AS about,
    APPROX_PERCENTILE(price, 0.5) AS median, APPROX_TOP_K(price, 2) AS top,
    ARRAY_AGG(ROW(shop, price)) FILTER (WHERE price > 5) AS dear,
    MAX_BY(ROW(item, price), ts) AS last_offer, LISTAGG(item, shop) AS joined
FROM TABLE(TUMBLE(TABLE offers, DESCRIPTOR(ts), INTERVAL '10' SECOND))
GROUP BY window_start, window_end;

-- In windows that overlap.
SELECT window_start, COUNT(DISTINCT shop) AS shops, ARRAY_AGG(price) AS listed
FROM TABLE(HOP(TABLE offers, DESCRIPTOR(ts), INTERVAL '10' SECOND, INTERVAL '20' SECOND))
GROUP BY window_start, window_end;

-- In sessions: of a from 1 s to 12 s, of b from 3 s to 4 s and at 13 s.
SELECT window_start, window_end, shop, COUNT(DISTINCT price) AS prices, ARRAY_AGG(price) AS listed
FROM TABLE(SESSION(TABLE offers PARTITION BY shop, DESCRIPTOR(ts), INTERVAL '5' SECOND))
GROUP BY window_start, window_end, shop;

-- Without a window, of all records and of none.
SELECT COUNT(DISTINCT shop) AS shops, ARRAY_AGG(price) IGNORE NULLS AS listed,
    ARRAY_AGG(item) FILTER (WHERE price > 100) AS nothing
FROM offers;

SELECT COUNT(DISTINCT shop) AS shops, ARRAY_AGG(price) AS listed FROM offers WHERE price > 100;
