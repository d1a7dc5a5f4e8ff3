-- answer: by hand. What the windows have fired: shop, sum of the prices, number of offers
--   12:00:00   a 19 3   b 14 3
--   12:00:10   a 2 2    b NULL 1
-- exchange: refused
CREATE TABLE offers (
    ts TIMESTAMP(3), shop STRING, item STRING, price INT, WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH ('connector' = 'file', 'path' = 'data/offers.csv', 'format' = 'csv', 'csv.null-literal' = '-');

CREATE VIEW sums AS
SELECT window_start AS s, window_end AS e, window_time AS t, shop, SUM(price) AS total, COUNT(*) AS n
FROM TABLE(TUMBLE(TABLE offers, DESCRIPTOR(ts), INTERVAL '10' SECOND))
GROUP BY window_start, window_end, window_time, shop;

-- Fired rows are in the order of all their columns, also of those that nothing else needs: a comes before b.
SELECT window_start, FIRST_VALUE(total) AS f, LAST_VALUE(total) AS l, ARRAY_AGG(total) AS totals
FROM TABLE(TUMBLE(TABLE sums, DESCRIPTOR(t), INTERVAL '1' MINUTE))
GROUP BY window_start, window_end;

SELECT s, total FROM (
    SELECT *, ROW_NUMBER() OVER (PARTITION BY s, e ORDER BY n DESC) AS rn FROM sums
) WHERE rn = 1;
