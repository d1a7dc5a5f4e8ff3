-- answer: by hand. By price, the greatest first, the offers of the windows are
--   12:00:00   a NULL 9   b v 7 (at :03)   b y 7 (at :04)   a x 5 (at :01)   a z 5 (at :02)   b w NULL
--   12:00:10   a q 1 (at :11)   a r 1 (at :12)   b NULL NULL
CREATE TABLE offers (
    ts TIMESTAMP(3), shop STRING, item STRING, price INT, WATERMARK FOR ts AS ts
) WITH ('connector' = 'file', 'path' = 'data/offers.csv', 'format' = 'csv', 'csv.null-literal' = '-');

CREATE VIEW assigned AS
SELECT * FROM TABLE(TUMBLE(TABLE offers, DESCRIPTOR(ts), INTERVAL '10' SECOND));

-- Rows with equal sort keys come in the order of event time.
SELECT window_start, rn, shop, item, price FROM (
    SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY price DESC) AS rn
    FROM assigned
) WHERE rn <= 2;

-- RANK keeps all that are equal to the last one, DENSE_RANK counts different keys.
SELECT window_start, r, item, price FROM (
    SELECT *, RANK() OVER (PARTITION BY window_start, window_end ORDER BY price DESC) AS r FROM assigned
) WHERE r < 4;
SELECT window_start, r, item, price FROM (
    SELECT *, DENSE_RANK() OVER (PARTITION BY window_start, window_end ORDER BY price DESC) AS r
    FROM assigned
) WHERE r BETWEEN 2 AND 3;

-- NULL is less than any value; and it may be told to come last.
SELECT window_start, item FROM (
    SELECT *, ROW_NUMBER() OVER (PARTITION BY window_end ORDER BY price, item) AS rn FROM assigned
) WHERE rn = 1;
SELECT window_start, item FROM (
    SELECT *, ROW_NUMBER() OVER (PARTITION BY window_end ORDER BY price NULLS LAST, item DESC) AS rn
    FROM assigned
) WHERE 1 = rn;

-- Deduplication: of each shop the first offer; other conditions hold for what is left.
SELECT window_start, shop, item, price + 1 AS more FROM (
    SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end, shop ORDER BY ts) AS rn
    FROM assigned
) WHERE rn = 1 AND shop <> 'b';

-- The last offer of each shop: of several at one time, the one that stands last in the file, as in Flink.
SELECT window_start, shop, item FROM (
    SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end, shop ORDER BY ts DESC) AS rn
    FROM assigned
) WHERE rn = 1;
