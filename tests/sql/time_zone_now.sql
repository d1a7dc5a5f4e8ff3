-- answer: by hand. New York is 4 hours behind UTC in July, 5 in January. Midnight of UTC is 20:00 of the day before.
-- exchange: refused
SET 'time_zone' = 'America/New_York';
CREATE TABLE times (local TIMESTAMP(3), at TIMESTAMP_LTZ(3), s STRING) WITH ('connector' = 'file', 'format' = 'csv', 'path' = 'data/new_york.csv');
CREATE VIEW now AS SELECT NOW() AS a, CURRENT_TIMESTAMP AS b, LOCALTIMESTAMP AS c, CURRENT_DATE AS d, CURRENT_TIME AS e, LOCALTIME AS f;
DESCRIBE now;
-- The instant is that of the clock in the zone, and its date and time are what the clock shows.
SELECT a = c AS local, a - c AS apart, CAST(a AS DATE) = d AND CAST(c AS DATE) = d AS date_, CAST(a AS TIME(0)) = e AND e = f AS time_,
       UNIX_TIMESTAMP() = UNIX_TIMESTAMP(c) AS unix, TIMESTAMPDIFF(SECOND, a, c) AS seconds, DATEDIFF(a, d) AS days FROM now;
SELECT at = local AS same, at - local AS apart, local - at AS back, TIMESTAMPDIFF(HOUR, local, at) AS hours, TIMESTAMPDIFF(DAY, CAST(local AS DATE), at) AS days,
       DATEDIFF(at, local) AS dates, EXTRACT(EPOCH FROM at) AS seconds, EXTRACT(EPOCH FROM local) AS of_local FROM times;
SELECT UNIX_TIMESTAMP(at) AS of_at, UNIX_TIMESTAMP(local) AS of_local, UNIX_TIMESTAMP(s) AS of_text, FROM_UNIXTIME(UNIX_TIMESTAMP(at)) AS back,
       TO_TIMESTAMP_LTZ(s) = at AS of_clock, TO_TIMESTAMP_LTZ('2024-07-02T00:00:00Z') = at AS of_offset FROM times;
-- Months are those that a clock shows: from 1 February to 31 March in New York, to 1 April in UTC.
SELECT TIMESTAMPDIFF(MONTH, TIMESTAMP '2024-02-01 00:00:00', TO_TIMESTAMP_LTZ('2024-04-01T02:00:00Z')) AS months;
SELECT at > NOW() AS later, NOW() > local AS earlier FROM times;
