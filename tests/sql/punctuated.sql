-- answer: by hand. Only records with a flag carry a watermark: none before the fourth, which stands at 11 s; from then
-- on 11 s, so that the records of 9 s and 4 s are late; 19 s before the last, whose window ends at 20 s.
-- counters: records=10 late_records=2 partly_late_records=0 windows=3
CREATE TABLE events (
    ts TIMESTAMP(3), k STRING, flag BOOLEAN,
    WATERMARK FOR ts AS CASE WHEN flag THEN ts END
) WITH ('connector' = 'file', 'path' = 'data/punctuated.csv', 'format' = 'csv');

SELECT window_start, COUNT(*) AS n
FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '10' SECOND))
GROUP BY window_start, window_end;
