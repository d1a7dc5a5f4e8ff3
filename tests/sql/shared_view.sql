-- answer: by hand. A view without aggregation, of which the conditions and the digits are worked out once. It has
-- 2 and 8 to 512; of these 16, 128 and 512 are late for the windows. Nobody wants the share of 4.
-- counters: records=20 late_records=3
-- outputs: long, windows, shares, twice, first, first_too
-- exchange: refused
CREATE TABLE events (
    ts TIMESTAMP(3), v BIGINT, WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH ('connector' = 'file', 'path' = 'data/late.csv', 'format' = 'csv');

CREATE VIEW big AS
    SELECT ts, v, CHAR_LENGTH(CAST(v AS STRING)) AS digits, 1000 / (v - 4) AS share
    FROM events WHERE v > 1 AND v <> 4;

CREATE TABLE long (v BIGINT, digits INT)
WITH ('connector' = 'file', 'path' = 'long', 'format' = 'csv', 'csv.header' = 'false');
CREATE TABLE windows (s TIMESTAMP(3), n BIGINT, digits BIGINT)
WITH ('connector' = 'file', 'path' = 'windows', 'format' = 'csv', 'csv.header' = 'false');
CREATE TABLE shares (share BIGINT)
WITH ('connector' = 'file', 'path' = 'shares', 'format' = 'csv', 'csv.header' = 'false');
CREATE TABLE twice (v BIGINT)
WITH ('connector' = 'file', 'path' = 'twice', 'format' = 'csv', 'csv.header' = 'false');
CREATE TABLE first (what STRING)
WITH ('connector' = 'file', 'path' = 'first', 'format' = 'csv', 'csv.header' = 'false');
CREATE TABLE first_too (what STRING)
WITH ('connector' = 'file', 'path' = 'first_too', 'format' = 'csv', 'csv.header' = 'false');

EXECUTE STATEMENT SET BEGIN
    INSERT INTO long SELECT v, digits FROM big WHERE digits > 2;
    INSERT INTO windows
        SELECT window_start, COUNT(*), SUM(digits)
        FROM TABLE(TUMBLE(TABLE big, DESCRIPTOR(ts), INTERVAL '10' SECOND))
        GROUP BY window_start, window_end;
    INSERT INTO shares SELECT SUM(share) FROM big WHERE v > 100;
    INSERT INTO twice SELECT v FROM big WHERE v < 10 UNION ALL SELECT digits FROM big WHERE v > 200;
    INSERT INTO first SELECT 'a record' FROM big LIMIT 2;
    INSERT INTO first_too SELECT 'a record' FROM big LIMIT 2;
END;

-- A query that reads it twice: record by record.
SELECT v, digits FROM big WHERE v > 100 UNION ALL SELECT -v, share FROM big WHERE v > 200 LIMIT 4;
