-- answer: by hand, from sessions.sql: without the record at 27 s, which is late by a second.
-- counters: records=12 late_records=1
CREATE TABLE visits (
    ts TIMESTAMP(3), who STRING, page STRING, ms BIGINT, WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH ('connector' = 'file', 'path' = 'data/visits.csv', 'format' = 'csv');

SELECT window_start, window_end, COUNT(*) AS n
FROM TABLE(SESSION(TABLE visits PARTITION BY who, DESCRIPTOR(ts), INTERVAL '10' SECOND))
WHERE who = 'ann'
GROUP BY who, window_start, window_end;
