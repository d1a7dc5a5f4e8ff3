-- Clicks for each page, counted every second, from a directory to which other programs add lines.
CREATE TABLE clicks (
    ts TIMESTAMP(3),
    page BIGINT,
    WATERMARK FOR ts AS ts - INTERVAL '1' SECOND
) WITH ('connector' = 'file', 'path' = 'in/*.csv', 'format' = 'csv', 'follow' = 'true');

CREATE TABLE counts (window_start TIMESTAMP(3), page BIGINT, clicks BIGINT)
WITH ('connector' = 'file', 'path' = 'out', 'format' = 'csv', 'csv.header' = 'false');

INSERT INTO counts
SELECT window_start, page, COUNT(*)
FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '1' SECOND))
GROUP BY window_start, window_end, page;
