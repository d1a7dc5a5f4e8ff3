-- answer: by hand. In the order of event time the offers are
--   window 12:00:00   1 s a x 5, 2 s a z 5, 3 s b v 7, 4 s b y 7, 4 s b w NULL, 6 s a NULL 9
--   window 12:00:10   11 s a q 1, 12 s a r 1, 13 s b NULL NULL
-- A filter leaves records out, not NULLs in their place.
-- exchange: refused
CREATE TABLE offers (
    ts TIMESTAMP(3), shop STRING, item STRING, price INT, WATERMARK FOR ts AS ts
) WITH ('connector' = 'file', 'path' = 'data/offers.csv', 'format' = 'csv', 'csv.null-literal' = '-');

SELECT window_start, shop, GROUPING(shop) AS g, COUNT(DISTINCT price) AS prices, ARRAY_AGG(price) AS listed,
    ARRAY_AGG(item) FILTER (WHERE price = 7) AS sevens, LISTAGG(item, shop) FILTER (WHERE price < 8) AS joined,
    MIN_BY(item, price) FILTER (WHERE item <> 'x') AS cheap
FROM TABLE(TUMBLE(TABLE offers, DESCRIPTOR(ts), INTERVAL '10' SECOND))
GROUP BY window_start, window_end, ROLLUP (shop);

-- The set without keys is a grouping of its own where there is no window.
SELECT shop, ARRAY_AGG(price) FILTER (WHERE price < 6) AS few, COUNT(DISTINCT item) AS items,
    MAX_BY(ROW(item), price) AS dear
FROM offers GROUP BY ROLLUP (shop);

SELECT shop, ARRAY_AGG(price) AS listed, COUNT(*) AS n FROM offers WHERE price > 100 GROUP BY CUBE (shop);
