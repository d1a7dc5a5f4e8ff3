-- answer: by hand. In the order of event time the offers are
--   window 12:00:00   a: x 5, z 5, NULL 9      b: v 7, y 7, w NULL
--   window 12:00:10   a: q 1, r 1              b: NULL NULL
-- exchange: refused
CREATE TABLE offers (
    ts TIMESTAMP(3), shop STRING, item STRING, price INT, WATERMARK FOR ts AS ts
) WITH ('connector' = 'file', 'path' = 'data/offers.csv', 'format' = 'csv', 'csv.null-literal' = '-');

CREATE VIEW assigned AS
SELECT * FROM TABLE(TUMBLE(TABLE offers, DESCRIPTOR(ts), INTERVAL '10' SECOND));

-- Fired rows are in the order of their windows, and within one in that of their values.
SELECT window_start, LISTAGG(CONCAT(shop, CAST(n AS STRING)), ' ') AS counts
FROM TABLE(TUMBLE((
    SELECT window_time AS wt, shop, COUNT(*) AS n
    FROM TABLE(TUMBLE(TABLE offers, DESCRIPTOR(ts), INTERVAL '10' SECOND))
    GROUP BY window_start, window_end, window_time, shop
), DESCRIPTOR(wt), INTERVAL '1' MINUTE))
GROUP BY window_start, window_end;

-- The elements of a record have its time, and come in their order.
SELECT window_start, LISTAGG(x) AS elements
FROM TABLE(TUMBLE(TABLE offers, DESCRIPTOR(ts), INTERVAL '10' SECOND))
CROSS JOIN UNNEST(ARRAY[item, shop, item]) AS u (x)
WHERE price = 5
GROUP BY window_start, window_end;

-- Over the result of a grouping: the shops with the greatest turnover, taken when the sums are final.
SELECT window_start, window_end, shop, total FROM (
    SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY total DESC) AS rn
    FROM (
        SELECT window_start, window_end, shop, SUM(price) AS total
        FROM assigned GROUP BY window_start, window_end, shop
    )
) WHERE rn <= 1;

-- And a grouping over the result of a ranking.
SELECT window_start, COUNT(*) AS n, SUM(price) AS total FROM (
    SELECT * FROM (
        SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY price DESC) AS rn
        FROM assigned
    ) WHERE rn <= 3
) GROUP BY window_start, window_end;
