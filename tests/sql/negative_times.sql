-- answer: by hand. One millisecond before the epoch belongs to the window that ends at the epoch, not
-- to the one that starts there.
-- counters: windows=3 late_records=0
CREATE TABLE old (
    ts TIMESTAMP(3),
    v BIGINT,
    WATERMARK FOR ts AS ts
) WITH ('connector' = 'file', 'path' = 'data/negative.csv', 'format' = 'csv');

SELECT window_start, window_end, SUM(v) AS total
FROM TABLE(TUMBLE(TABLE old, DESCRIPTOR(ts), INTERVAL '10' SECOND))
GROUP BY window_start, window_end;
