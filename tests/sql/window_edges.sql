-- answer: by hand. A window is [start, end): 9.999 belongs to the first, 10.000 to the second. Nothing
-- falls into [30, 40), and an empty window has no row.
-- counters: records=6 windows=4 rows=4 late_records=0
CREATE TABLE edges (
    ts TIMESTAMP(3),
    v BIGINT,
    WATERMARK FOR ts AS ts
) WITH ('connector' = 'file', 'path' = 'data/edges.csv', 'format' = 'csv');

SELECT window_start, window_end, window_time, COUNT(*) AS n, MIN(v) AS low, MAX(v) AS high
FROM TABLE(TUMBLE(TABLE edges, DESCRIPTOR(ts), INTERVAL '10' SECOND))
GROUP BY window_start, window_end, window_time;
