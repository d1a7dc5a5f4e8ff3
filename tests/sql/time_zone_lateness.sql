-- answer: by hand. The half hour is one of the clock in UTC, also where local clocks are changed. 31 March: the hour from 1
-- ends at 01:00 UTC, so at 01:01 it takes 4, and at 01:30 no longer 16. 27 October: the hour from 1 ends at 00:00 UTC, so
-- at 00:20 it takes 128, and at 01:29 not 512; the two hours from 2 end at 02:00 UTC, so at 02:29 they take 2048, and at
-- 02:30 not 8192.
-- counters: records=14 late_records=3 windows=5
CREATE TABLE events (
    `at` TIMESTAMP_LTZ(0), v BIGINT, WATERMARK FOR `at` AS `at`
) WITH ('connector' = 'file', 'path' = 'data/zoned_late.csv', 'format' = 'csv');

SET 'time_zone' = 'Europe/Zurich';
SET 'allowed_lateness' = '30 min';

SELECT window_start, window_end, SUM(v) AS total
FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(`at`), INTERVAL '1' HOUR)) GROUP BY window_start, window_end;
