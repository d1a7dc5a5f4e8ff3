-- answer: by hand, from punctuated.sql. The watermark is at 11 s from the fifth record on: that of 9 s is late for
-- [0, 10) and counts for [5, 15); that of 4 s is late for both of its windows. At 19 s the last one, of 12 s, is late for
-- [5, 15) and counts for [10, 20).
-- counters: records=10 late_records=1 partly_late_records=2 windows=6
CREATE TABLE events (
    ts TIMESTAMP(3), k STRING, flag BOOLEAN,
    WATERMARK FOR ts AS CASE WHEN flag THEN ts END
) WITH ('connector' = 'file', 'path' = 'data/punctuated.csv', 'format' = 'csv');

SELECT window_start, COUNT(*) AS n
FROM TABLE(HOP(TABLE events, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '10' SECOND))
GROUP BY window_start, window_end;
