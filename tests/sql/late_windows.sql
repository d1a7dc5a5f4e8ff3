-- answer: by hand, from late_records.sql. WHERE leaves out windows before 10 s, so also the records that are
-- in no other: 1, 4, 16 and 512. Of them 16 and 512 come when their window has ended; they are not late.
-- The late one is 128: [10 s, 20 s) has ended by then, as 64 is at 25 s.
-- counters: records=10 late_records=1 windows=2
CREATE TABLE events (
    ts TIMESTAMP(3), v BIGINT, WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH ('connector' = 'file', 'path' = 'data/late.csv', 'format' = 'csv');

SELECT window_start, COUNT(*) AS n, SUM(v) AS total
FROM TABLE(HOP(TABLE events, DESCRIPTOR(ts), INTERVAL '10' SECOND, INTERVAL '10' SECOND))
WHERE window_start >= TIMESTAMP '2024-01-01 00:00:10'
GROUP BY window_start, window_end;
