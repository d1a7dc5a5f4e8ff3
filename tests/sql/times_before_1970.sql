-- answer: by hand. What a type has no digits for is left out: times are rounded down, before 1970 as after it. In Flink the
-- milliseconds since 1970 are those of Java's Instant, which are rounded down.
-- outputs: three_out, rows_out
CREATE TABLE six (id INT, t TIMESTAMP(6)) WITH ('connector' = 'file', 'path' = 'data/before_1970.csv', 'format' = 'csv');
CREATE TABLE three (id INT, t TIMESTAMP(3)) WITH ('connector' = 'file', 'path' = 'data/before_1970.csv', 'format' = 'csv');
CREATE TABLE zero (id INT, t TIMESTAMP(0)) WITH ('connector' = 'file', 'path' = 'data/before_1970.csv', 'format' = 'csv');
CREATE TABLE three_out (id INT, t TIMESTAMP(3))
WITH ('connector' = 'file', 'path' = 'three_out', 'format' = 'csv', 'csv.header' = 'false');
CREATE TABLE rows_out (id INT, r ROW<t TIMESTAMP(0)>) WITH ('connector' = 'file', 'path' = 'rows_out', 'format' = 'ndjson');

SELECT id, CAST(t AS TIMESTAMP(3)) AS ms, CAST(t AS TIMESTAMP(0)) AS s, TRY_CAST(CAST(t AS TIMESTAMP(3)) AS TIMESTAMP(0)) AS twice,
       CAST(t AS TIMESTAMP_LTZ(3)) AS ltz, CAST(t AS TIMESTAMP(3)) = TIMESTAMP '1969-12-31 23:59:59.123' AS same
FROM six;
SELECT id, t, CAST(CAST(t AS STRING) AS TIMESTAMP(0)) AS text FROM three;
SELECT id, t FROM zero;

INSERT INTO three_out SELECT id, t FROM six;
INSERT INTO rows_out SELECT id, ROW(t) FROM six;
