-- answer: by hand: Python's zoneinfo and datetime; a local time that comes twice is the first, as with fold=0
CREATE TABLE times (id INT, s STRING, ts TIMESTAMP(3)) WITH ('connector' = 'file', 'path' = 'data/times_up.csv', 'format' = 'csv');

SELECT id, CONVERT_TZ(s, 'UTC', 'America/Los_Angeles') AS a, CONVERT_TZ(s, 'Europe/Zurich', 'UTC') AS b, CONVERT_TZ(s, '+05:30', 'Asia/Tokyo') AS c
FROM times;
SELECT id, CEIL(ts TO MILLISECOND) AS u0, CEIL(ts TO SECOND) AS u1, CEIL(ts TO MINUTE) AS u2, CEIL(ts TO HOUR) AS u3, CEIL(ts TO DAY) AS u4,
       CEIL(ts TO WEEK) AS u5, CEIL(ts TO MONTH) AS u6, CEIL(ts TO QUARTER) AS u7, CEIL(ts TO YEAR) AS u8
FROM times;
SELECT id, FLOOR(ts TO MILLISECOND) AS u0, FLOOR(ts TO SECOND) AS u1, FLOOR(ts TO MINUTE) AS u2, FLOOR(ts TO HOUR) AS u3, FLOOR(ts TO DAY) AS u4,
       FLOOR(ts TO WEEK) AS u5, FLOOR(ts TO MONTH) AS u6, FLOOR(ts TO QUARTER) AS u7, FLOOR(ts TO YEAR) AS u8
FROM times;
SELECT id, CEIL(CAST(ts AS DATE) TO MONTH) AS m, CEIL(CAST(ts AS DATE) TO HOUR) AS h, CEIL(CAST(ts AS TIME(3)) TO MINUTE) AS t FROM times WHERE id IN (1, 2, 4, 7);
SELECT CEIL(TIME '12:44:31' TO MINUTE) AS a, CEIL(TIMESTAMP '2024-05-01 12:00:00.000001' TO HOUR) AS b, CEIL(CEIL(ts TO HOUR) TO DAY) AS c, COUNT(*) AS n
FROM times WHERE id = 2 GROUP BY CEIL(CEIL(ts TO HOUR) TO DAY);
SET 'time_zone' = 'Asia/Kolkata';
SELECT id, CEIL(CAST(ts AS TIMESTAMP_LTZ(3)) TO HOUR) AS h FROM times WHERE id IN (2, 6);
