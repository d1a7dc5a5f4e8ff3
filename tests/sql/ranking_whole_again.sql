-- answer: by hand. Without a window all results of a bounded input are ranked together, at its end.
-- exchange: refused
CREATE TABLE offers (
    ts TIMESTAMP(3), shop STRING, item STRING, price INT, WATERMARK FOR ts AS ts
) WITH ('connector' = 'file', 'path' = 'data/offers.csv', 'format' = 'csv', 'csv.null-literal' = '-');

-- Over pairs, which meet without a window: in shop a, x, z, q and r have a dearer one, NULL at 9.
SELECT item, dearer, price FROM (
    SELECT o.item, d.item AS dearer, d.price,
        ROW_NUMBER() OVER (PARTITION BY o.shop ORDER BY d.price DESC, o.ts) AS rn
    FROM offers AS o JOIN offers AS d ON o.shop = d.shop AND o.price < d.price
) WHERE rn <= 3;

-- Over results of windows: the window in which a shop has most offers.
SELECT shop, window_start, n FROM (
    SELECT *, ROW_NUMBER() OVER (PARTITION BY shop ORDER BY n DESC) AS rn FROM (
        SELECT window_start, shop, COUNT(*) AS n
        FROM TABLE(TUMBLE(TABLE offers, DESCRIPTOR(ts), INTERVAL '10' SECOND))
        GROUP BY window_start, window_end, shop
    )
) WHERE rn = 1;
