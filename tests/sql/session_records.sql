-- answer: by hand, from joins_sessions.sql. The late record is none of those that the last query asks for.
-- counters: late_records=3
CREATE TABLE events (
    ts TIMESTAMP(3), kind STRING, k STRING, id STRING, WATERMARK FOR ts AS ts - INTERVAL '10' SECOND
) WITH ('connector' = 'file', 'path' = 'data/bids_and_sellers.csv', 'format' = 'csv', 'csv.null-literal' = '-');
CREATE VIEW s AS
SELECT * FROM TABLE(SESSION(TABLE events PARTITION BY k, DESCRIPTOR(ts), INTERVAL '10' SECOND));

-- Each record with its session. Those that WHERE leaves out make sessions longer.
SELECT window_start, window_end, window_time, ts, k, id FROM s WHERE kind = 'B' AND k < 'd';

-- A condition on the key, and one on the session.
SELECT id, window_end - INTERVAL '10' SECOND AS last_at FROM s WHERE k = 'a' AND window_end < TIMESTAMP '2024-01-01 00:00:35';

-- Sessions of all records together, gaps of 8 s: 0 to 20 (18 is 8 s after 10), 31, 40 to 50, 59 to 61, 70 to 75.
SELECT window_start, window_end, id
FROM TABLE(SESSION(TABLE events, DESCRIPTOR(ts), INTERVAL '8' SECOND)) WHERE kind = 'S' AND id <> 's3';

-- In order.
SELECT window_end, id FROM s WHERE k IN ('c', 'd') ORDER BY window_end, id DESC;
