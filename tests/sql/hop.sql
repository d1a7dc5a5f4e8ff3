-- answer: by hand. Seconds of the records, their users and costs (one is NULL):
--   0 ann 1, 1 bob 2, 2 ann 3, 3 ann -, 4 bob 5, 10 cid 6, 11 bob 7, 12 cid 8, 20 ann 9
-- 10 s every 5 s: [-5, 5) and [0, 10) have the first five, [5, 15) and [10, 20) the next three, [15, 25)
-- and [20, 30) the last.
-- 8 s every 4 s from 1 s on: [-7, 1) has 0; [-3, 5) 0 to 4; [1, 9) 1 to 4; [5, 13) and [9, 17) 10 to 12;
-- [13, 21) and [17, 25) 20.
CREATE TABLE clicks (
    ts TIMESTAMP(3), user_name STRING, kind STRING, cost INT, WATERMARK FOR ts AS ts
) WITH ('connector' = 'file', 'path' = 'data/clicks.csv', 'format' = 'csv');

SELECT window_start, window_end, window_time, COUNT(*) AS n, SUM(cost) AS total
FROM TABLE(HOP(TABLE clicks, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '10' SECOND))
GROUP BY window_start, window_end, window_time;

SELECT window_start, user_name, COUNT(*) AS n, SUM(cost) AS total
FROM TABLE(HOP(
    DATA => TABLE clicks, TIMECOL => DESCRIPTOR(ts), SLIDE => INTERVAL '4' SECOND,
    SIZE => INTERVAL '8' SECOND, OFFSET => INTERVAL '-7' SECOND))
GROUP BY window_start, window_end, user_name;

-- Conditions on the window and on records.
SELECT window_end, COUNT(*) AS n
FROM TABLE(HOP(TABLE clicks, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '10' SECOND))
WHERE window_start >= TIMESTAMP '2024-01-01 00:00:00' AND cost > 2 AND kind <> 'buy'
GROUP BY window_end
HAVING COUNT(*) < 3;
