-- answer: by hand. Nine keys of nine types at once. -0.0 and 0.0 are one group, and so are 12345678.90
-- and 12345678.9, 1e300 and 1.0e300.
CREATE TABLE typed (
    ts TIMESTAMP(3), flag BOOLEAN, small TINYINT, born DATE, moment TIMESTAMP(6), name STRING,
    price DECIMAL(12, 2), ratio DOUBLE, single FLOAT, code BYTES,
    WATERMARK FOR ts AS ts
) WITH ('connector' = 'file', 'path' = 'data/types.csv', 'format' = 'csv');

SELECT flag, small, born, moment, name, price, ratio, single, code, COUNT(*) AS n
FROM TABLE(TUMBLE(TABLE typed, DESCRIPTOR(ts), INTERVAL '10' SECOND))
GROUP BY window_start, window_end, flag, small, born, moment, name, price, ratio, single, code;
