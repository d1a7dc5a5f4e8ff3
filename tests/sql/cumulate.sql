-- answer: by hand. Seconds of the records, and their costs (one is NULL):
--   0 1, 1 2, 2 3, 3 -, 4 5, 10 6, 11 7, 12 8, 20 9
-- Up to 15 s by 5 s: [0, 5) and [0, 10) have the first five, [0, 15) the first eight; [15, 20) has none
-- and does not show; [15, 25) and [15, 30) have the last.
-- From -2 s on, which is [-2, 13) and [13, 28): [-2, 3) has 0, 1, 2; [-2, 8) the first five; [-2, 13) the
-- first eight; [13, 18) none; [13, 23) and [13, 28) the last.
CREATE TABLE clicks (
    ts TIMESTAMP(3), user_name STRING, kind STRING, cost INT, WATERMARK FOR ts AS ts
) WITH ('connector' = 'file', 'path' = 'data/clicks.csv', 'format' = 'csv');

SELECT window_start, window_end, window_time, COUNT(*) AS n, SUM(cost) AS total
FROM TABLE(CUMULATE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '15' SECOND))
GROUP BY window_start, window_end, window_time;

SELECT window_start, window_end, COUNT(*) AS n
FROM TABLE(CUMULATE(
    TABLE clicks, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '15' SECOND, INTERVAL '-2' SECOND))
GROUP BY window_start, window_end;
