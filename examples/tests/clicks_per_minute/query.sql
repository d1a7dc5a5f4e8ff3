-- Clicks per page and minute. In production they come over HTTP; the test reads clicks.csv instead.
CREATE TABLE clicks (
    ts TIMESTAMP(3), page STRING, millis INT, WATERMARK FOR ts AS ts - INTERVAL '10' SECOND
) WITH ('connector' = 'http', 'listen' = '127.0.0.1:8080', 'format' = 'ndjson');

SELECT window_start, window_end, page, COUNT(*) AS clicks, MAX(millis) AS slowest
FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '1' MINUTE))
GROUP BY window_start, window_end, page;
