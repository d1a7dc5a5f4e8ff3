-- answer: by hand, from ranking_windows.sql. Sessions of shops with gaps of 2 s, and their prices from the least on:
--   a [01, 04) 5 5   b [03, 06) NULL 7 7   a [06, 08) 9   a [11, 14) 1 1   b [13, 15) NULL
-- exchange: refused
CREATE TABLE awaited (
    ts TIMESTAMP(3), shop STRING, item STRING, price INT, WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH ('connector' = 'file', 'path' = 'data/offers.csv', 'format' = 'csv', 'csv.null-literal' = '-');

-- How many there are in longer windows: of each session those with the two least prices.
CREATE VIEW least AS SELECT window_time AS t, price FROM (
    SELECT *, DENSE_RANK() OVER (PARTITION BY window_start, window_end, shop ORDER BY price) AS r
    FROM TABLE(SESSION(TABLE awaited PARTITION BY shop, DESCRIPTOR(ts), INTERVAL '2' SECOND))
) WHERE r <= 2;
SELECT window_start, COUNT(*) AS n, MAX(price) AS most
FROM TABLE(TUMBLE(TABLE least, DESCRIPTOR(t), INTERVAL '10' SECOND))
GROUP BY window_start, window_end;
