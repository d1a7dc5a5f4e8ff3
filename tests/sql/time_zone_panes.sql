-- answer: by hand, from the local times of time_zone.sql: 1 on 30 March, 2 + 4 + 8 + 16 on the 31st (2 + 4 + 8 before
-- noon), 32 on 1 April at 0:00, 64 on 26 October, 128 to 8192 on the 27th (all but 8192 before noon), 16384 on the
-- 28th at 0:00. The days of 23 and 25 hours have two panes like others.
-- counters: records=30 late_records=0
CREATE TABLE events (
    `at` TIMESTAMP_LTZ(0), v BIGINT, WATERMARK FOR `at` AS `at`
) WITH ('connector' = 'file', 'path' = 'data/zoned.csv', 'format' = 'csv');

SET 'time_zone' = 'Europe/Zurich';

SELECT window_start, window_end, SUM(v) AS total
FROM TABLE(HOP(TABLE events, DESCRIPTOR(`at`), INTERVAL '1' DAY, INTERVAL '2' DAY)) GROUP BY window_start, window_end;

SELECT window_start, window_end, SUM(v) AS total
FROM TABLE(CUMULATE(TABLE events, DESCRIPTOR(`at`), INTERVAL '12' HOUR, INTERVAL '1' DAY))
GROUP BY window_start, window_end;
