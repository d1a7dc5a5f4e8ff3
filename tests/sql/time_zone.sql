-- answer: by hand. In Zurich, clocks are put forward on 31 March 2024 at 01:00 UTC, from 2 to 3 o'clock, and back on
-- 27 October at 01:00 UTC, from 3 to 2. So 31 March has 23 hours, from 23:00 to 22:00 UTC, and 27 October has 25.
-- counters: records=90 late_records=0
CREATE TABLE events (
    `at` TIMESTAMP_LTZ(0), v BIGINT, WATERMARK FOR `at` AS `at`
) WITH ('connector' = 'file', 'path' = 'data/zoned.csv', 'format' = 'csv');

-- UTC, as long as nothing else is said.
SELECT window_start, window_end, SUM(v) AS total
FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(`at`), INTERVAL '1' DAY)) GROUP BY window_start, window_end;

SET 'time_zone' = 'Europe/Zurich';

SELECT window_start, window_end, SUM(v) AS total
FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(`at`), INTERVAL '1' DAY)) GROUP BY window_start, window_end;

-- The ten minutes from 2:00 and from 2:10 come twice, and are windows that have the records of both times.
SELECT window_start, SUM(v) AS total
FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(`at`), INTERVAL '10' MINUTE))
WHERE v BETWEEN 200 AND 5000 GROUP BY window_start, window_end;

SELECT v, `at`, CAST(`at` AS STRING) AS text, CAST(`at` AS DATE) AS day, EXTRACT(HOUR FROM `at`) AS h,
    DATE_FORMAT(`at`, 'HH:mm') AS clock, `at` = TIMESTAMP '2024-03-31 03:00:00' AS third
FROM events WHERE v IN (2, 4, 8, 256, 1024);

-- A number of seconds or milliseconds since 1970 is an instant: in October 2024 it is 2 hours later in Zurich than in UTC.
SELECT TO_TIMESTAMP_LTZ(1727784000, 0) AS s, TO_TIMESTAMP_LTZ(1727784000123) AS ms, TO_TIMESTAMP_LTZ(1727784000.5E0, 0) AS half,
    TO_TIMESTAMP_LTZ(v, 3) AS v
FROM events WHERE v = 8;

SET 'table.local-time-zone' = 'UTC';

SELECT v, `at`, EXTRACT(HOUR FROM `at`) AS h FROM events WHERE v = 8;
