-- answer: by hand, from the local times of time_zone.sql. Windows of records that are not grouped, or that a condition or
-- an aggregate looks at, divide local time, too: 1 is of 30 March, 23:30 in Zurich; 2, 4, 8 and 16 are of the 31st.
-- counters: records=75 late_records=0
-- exchange: refused
CREATE TABLE events (
    `at` TIMESTAMP_LTZ(0), v BIGINT, WATERMARK FOR `at` AS `at`
) WITH ('connector' = 'file', 'path' = 'data/zoned.csv', 'format' = 'csv');

SET 'time_zone' = 'Europe/Zurich';

SELECT v, window_start, window_end, window_time
FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(`at`), INTERVAL '1' DAY)) WHERE v <= 2;

SELECT v, window_start, window_end
FROM TABLE(HOP(TABLE events, DESCRIPTOR(`at`), INTERVAL '1' DAY, INTERVAL '2' DAY)) WHERE v = 1;

SELECT v, window_start, window_end
FROM TABLE(CUMULATE(TABLE events, DESCRIPTOR(`at`), INTERVAL '12' HOUR, INTERVAL '1' DAY)) WHERE v IN (2, 16);

SELECT window_start, SUM(v) AS total
FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(`at`), INTERVAL '1' DAY))
WHERE window_start BETWEEN TIMESTAMP '2024-03-31 00:00:00' AND TIMESTAMP '2024-04-01 00:00:00'
GROUP BY window_start, window_end;

SELECT COUNT(*) FILTER (WHERE window_start < TIMESTAMP '2024-03-31 00:00:00') AS before, MAX(window_start) AS last,
    MIN(TIMESTAMPDIFF(HOUR, window_start, CAST(`at` AS TIMESTAMP(0)))) AS hour
FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(`at`), INTERVAL '1' DAY)) WHERE v <= 2 GROUP BY window_start;
