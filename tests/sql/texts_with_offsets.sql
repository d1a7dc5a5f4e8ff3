-- answer: by hand, as Flink reads texts. A TIMESTAMP is the time of a clock, so a text with an offset from UTC is none; it is
-- a TIMESTAMP_LTZ. The DATE of a text is the day that is written. Seconds end at 59, and are written.
SELECT s, TRY_CAST(s AS TIMESTAMP(3)) AS t, TRY_CAST(s AS DATE) AS d, TRY_CAST(s AS TIMESTAMP_LTZ(3)) AS z
FROM (VALUES ('2024-01-01 00:00:00+02:00'), ('2024-01-01T23:30:00.5-05:00'), ('2024-01-01 12:00:00Z'),
             ('2024-01-01 12:00:00 +02'), ('2024-01-01 12:00:00'), ('2024-01-01 12:00:60'), ('2024-01-01 12:00'),
             ('2024-01-01 120000'), (' 2024-01-01 12:00:00 '), ('2024-01-01'), ('-0001-01-01')) AS t (s);
SELECT s, CAST(s AS DATE) AS d, TO_DATE(s) AS e, DATE '2024-01-01 00:00:00+02:00' AS c, DATE '2024-01-01' = s AS same
FROM (VALUES ('2024-01-01 00:00:00+02:00'), ('2024-01-01 23:30:00-05:00')) AS t (s);
CREATE TABLE zoned (at TIMESTAMP(3)) WITH ('connector' = 'file', 'format' = 'csv', 'path' = 'data/zoned.csv', 'on_error' = 'skip');
SELECT COUNT(*) AS n, MIN(at) AS at FROM zoned;
-- A file's types are inferred.
SELECT MIN(at) AS least FROM 'data/zoned.csv';
