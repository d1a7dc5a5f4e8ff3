-- answer: by hand. Event time as seconds in a BIGINT, through a computed column and through CAST.
CREATE TABLE ticks (
    s BIGINT, v BIGINT,
    ts AS to_timestamp_seconds(s),
    WATERMARK FOR ts AS ts - INTERVAL '2' SECOND
) WITH ('connector' = 'file', 'path' = 'data/ticks.csv', 'format' = 'csv');

SELECT window_start, COUNT(*) AS n, SUM(v) AS total, MIN(s) AS first_s
FROM TABLE(TUMBLE(TABLE ticks, DESCRIPTOR(ts), INTERVAL '5' SECOND))
GROUP BY window_start, window_end;
