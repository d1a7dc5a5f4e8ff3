-- answer: by hand. Without a window all rows of a bounded input are ranked together, at its end:
--   a   x 5 (at :01)   z 5 (at :02)   NULL 9 (at :06)   q 1 (at :11)   r 1 (at :12)
--   b   v 7 (at :03)   y 7 (at :04)   w NULL (at :04)   NULL NULL (at :13)
CREATE TABLE offers (
    ts TIMESTAMP(3), shop STRING, item STRING, price INT, WATERMARK FOR ts AS ts
) WITH ('connector' = 'file', 'path' = 'data/offers.csv', 'format' = 'csv', 'csv.null-literal' = '-');

-- Rows with equal sort keys come in the order of event time.
SELECT * FROM (
    SELECT shop, ROW_NUMBER() OVER (PARTITION BY shop ORDER BY price DESC) AS rn, item, price FROM offers
) WHERE rn <= 2;

-- Deduplication: the last offer of each shop.
SELECT shop, item FROM (
    SELECT *, ROW_NUMBER() OVER (PARTITION BY shop ORDER BY ts DESC) AS rn FROM offers
) WHERE rn = 1;

-- Without PARTITION BY; and over nothing.
SELECT r, item FROM (SELECT *, RANK() OVER (ORDER BY price DESC) AS r FROM offers) WHERE r <= 2;
SELECT r, item FROM (
    SELECT *, RANK() OVER (ORDER BY price DESC) AS r FROM offers WHERE shop = 'c'
) WHERE r <= 2;
