-- answer: by DuckDB: the rows with ROW_NUMBER() = 1 in the order of time and position for each value, in that order
-- exchange: refused
CREATE TABLE once (
    ts TIMESTAMP(3), k STRING, x INT, s STRING, WATERMARK FOR ts AS ts - INTERVAL '3' SECOND
) WITH ('connector' = 'file', 'path' = 'data/once.csv', 'format' = 'csv', 'csv.null-literal' = '-');

SELECT window_start, k, ARRAY_AGG(DISTINCT x) AS xs, LISTAGG(DISTINCT s, '-') AS ss
FROM TABLE(TUMBLE(TABLE once, DESCRIPTOR(ts), INTERVAL '20' SECOND))
GROUP BY window_start, window_end, k;

SELECT window_start, ARRAY_AGG(DISTINCT x) IGNORE NULLS AS xs, LISTAGG(DISTINCT s) AS ss
FROM TABLE(TUMBLE(TABLE once, DESCRIPTOR(ts), INTERVAL '20' SECOND))
GROUP BY window_start, window_end;

SELECT ARRAY_AGG(DISTINCT x) AS xs FROM once;
