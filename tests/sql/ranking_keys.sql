-- answer: by hand. Items and times of the offers, in the order of the file:
--   12:00:00   x :01   y :04   z :02   w :04   NULL :06   v :03
--   12:00:10   q :11   NULL :13   r :12
CREATE TABLE offers (
    ts TIMESTAMP(3), shop STRING, item STRING, price INT, WATERMARK FOR ts AS ts
) WITH ('connector' = 'file', 'path' = 'data/offers.csv', 'format' = 'csv', 'csv.null-literal' = '-');

CREATE VIEW assigned AS
SELECT *, CAST(item AS BYTES) AS code, CAST(ts AS TIME) AS seen
FROM TABLE(TUMBLE(TABLE offers, DESCRIPTOR(ts), INTERVAL '10' SECOND));

-- Sort keys of types between whose values there is no distance.
SELECT window_start, rn, item FROM (
    SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY code DESC) AS rn FROM assigned
) WHERE rn <= 2;

SELECT window_start, r, item FROM (
    SELECT *, RANK() OVER (PARTITION BY window_start, window_end ORDER BY seen DESC, code) AS r FROM assigned
) WHERE r <= 3;
