-- answer: by hand. In the order of event time, and of positions where times are equal, the offers are
--   window 12:00:00   a: x 5, z 5, NULL 9      b: v 7, y 7, w NULL
--   window 12:00:10   a: q 1, r 1              b: NULL NULL
CREATE TABLE offers (
    ts TIMESTAMP(3), shop STRING, item STRING, price INT, WATERMARK FOR ts AS ts
) WITH ('connector' = 'file', 'path' = 'data/offers.csv', 'format' = 'csv', 'csv.null-literal' = '-');

-- The least and the greatest by time or by price; of equal prices the first.
SELECT window_start, shop, FIRST_VALUE(item) AS f, LAST_VALUE(item) AS l,
    LAST_VALUE(item) RESPECT NULLS AS very_last, MIN_BY(item, price) AS cheap, MAX_BY(item, price) AS dear
FROM TABLE(TUMBLE(TABLE offers, DESCRIPTOR(ts), INTERVAL '10' SECOND))
GROUP BY window_start, window_end, shop;

-- Lists. LISTAGG leaves NULL out, ARRAY_AGG does not unless it is told to; a filter leaves it out too.
SELECT window_start, shop, LISTAGG(item) AS items, STRING_AGG(item, '; ') AS texts,
    ARRAY_AGG(price) AS prices, ARRAY_AGG(price) IGNORE NULLS AS known,
    ARRAY_AGG(price) FILTER (WHERE price < 8 OR item = 'w') AS few,
    ARRAY_AGG(price) IGNORE NULLS FILTER (WHERE price < 8 OR item = 'w') AS few_known
FROM TABLE(TUMBLE(TABLE offers, DESCRIPTOR(ts), INTERVAL '10' SECOND))
GROUP BY window_start, window_end, shop;

-- Of values of other types, rows among them; and a separator that is a column.
SELECT window_start, LAST_VALUE(ts) AS latest, ARRAY_AGG(ROW(shop, price)) AS both_columns,
    LISTAGG(item, shop) AS joined, MAX_BY(ROW(item, price), ts) AS last_offer
FROM TABLE(TUMBLE(TABLE offers, DESCRIPTOR(ts), INTERVAL '10' SECOND))
GROUP BY window_start, window_end;

-- Without a window the whole table is one group; its order is that of event time all the same.
SELECT LISTAGG(item) AS items, LISTAGG(item) FILTER (WHERE price > 100) AS nothing FROM offers;
