-- answer: by hand. 10 s every 5 s: the records of cid, at 10 s and 12 s, are in [5, 15) and [10, 20) each.
-- Up to 15 s by 5 s: the records of bob, at 1 s and 4 s, are in [0, 5), [0, 10) and [0, 15); that at 11 s
-- is in [0, 15) alone. Of null_time.csv, see null_event_time.sql: a record without a time has no window.
-- exchange: refused
CREATE TABLE clicks (
    ts TIMESTAMP(3), user_name STRING, kind STRING, cost INT, WATERMARK FOR ts AS ts
) WITH ('connector' = 'file', 'path' = 'data/clicks.csv', 'format' = 'csv');

SELECT *
FROM TABLE(HOP(TABLE clicks, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '10' SECOND))
WHERE user_name = 'cid';

SELECT ts, window_end, TIMESTAMPDIFF(SECOND, ts, window_end) AS left_over
FROM TABLE(CUMULATE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '15' SECOND)) AS w
WHERE w.user_name = 'bob' AND window_end > TIMESTAMP '2024-01-01 00:00:05';

-- A record is in no window that begins before it and ends with it: at 20 s, exactly.
SELECT window_start, window_time
FROM TABLE(HOP(
    TABLE clicks, DESCRIPTOR(ts), INTERVAL '10' SECOND, INTERVAL '20' SECOND, INTERVAL '30' SECOND))
WHERE cost = 9;

CREATE TABLE events (ts TIMESTAMP(3), v BIGINT, WATERMARK FOR ts AS ts)
WITH ('connector' = 'file', 'path' = 'data/null_time.csv', 'format' = 'csv');

SELECT window_end, v
FROM TABLE(CUMULATE(TABLE events, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '10' SECOND));
