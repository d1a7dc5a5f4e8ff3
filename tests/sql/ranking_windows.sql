-- answer: by hand. The watermark of the first table is each record's time, so the offer of :03, which comes after that
-- of :06, is late for windows that end at :05. By price, the greatest first, the offers are
--   :00 to :05 and before   b y 7   a x 5 (at :01)   a z 5 (at :02)   b w NULL
--   up to :10               a NULL 9   b v 7 (at :03)   b y 7 (at :04)   a x 5   a z 5   b w NULL
--   :05 to :15              a NULL 9   a q 1 (at :11)   a r 1 (at :12)   b NULL NULL (at :13)
--   :10 and later           a q 1   a r 1   b NULL NULL
-- Sessions with gaps of 2 s, none late: a [01, 04) x z, [06, 08) NULL, [11, 14) q r; b [03, 06) v y w, [13, 15) NULL.
CREATE TABLE offers (
    ts TIMESTAMP(3), shop STRING, item STRING, price INT, WATERMARK FOR ts AS ts
) WITH ('connector' = 'file', 'path' = 'data/offers.csv', 'format' = 'csv', 'csv.null-literal' = '-');
CREATE TABLE awaited (
    ts TIMESTAMP(3), shop STRING, item STRING, price INT, WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH ('connector' = 'file', 'path' = 'data/offers.csv', 'format' = 'csv', 'csv.null-literal' = '-');

SELECT window_end, window_start, rn, shop, item, price FROM (
    SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY price DESC) AS rn
    FROM TABLE(HOP(TABLE offers, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '10' SECOND))
) WHERE rn <= 2;

-- A condition on the window, and one that sorts nothing.
SELECT window_end, rn, item, price * 2 AS twice FROM (
    SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end, shop ORDER BY window_end, price DESC) AS rn
    FROM TABLE(HOP(TABLE offers, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '10' SECOND))
    WHERE window_end > TIMESTAMP '2024-05-01 12:00:05' AND shop = 'a'
) WHERE rn = 1;

SELECT window_end, window_start, r, item, price FROM (
    SELECT *, RANK() OVER (PARTITION BY window_start, window_end ORDER BY price DESC) AS r
    FROM TABLE(CUMULATE(TABLE offers, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '10' SECOND))
) WHERE r <= 2;

SELECT window_end, window_start, shop, item, price FROM (
    SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end, shop ORDER BY price DESC) AS rn
    FROM TABLE(SESSION(TABLE awaited PARTITION BY shop, DESCRIPTOR(ts), INTERVAL '2' SECOND))
) WHERE rn = 1;
