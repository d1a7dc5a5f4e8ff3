-- answer: by hand, from the windows of 10 s in late_records: 2 and 5, 3 and 42, 2 and 320. The view is
-- computed once, so its 3 late records are counted once; the table is read once.
-- counters: records=10 late_records=3
-- outputs: many, totals, minutes, odd
-- exchange: refused
CREATE TABLE events (
    ts TIMESTAMP(3), v BIGINT, WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH ('connector' = 'file', 'path' = 'data/late.csv', 'format' = 'csv');

CREATE TABLE many (s TIMESTAMP(3), n BIGINT)
WITH ('connector' = 'file', 'path' = 'many', 'format' = 'csv', 'csv.header' = 'false');
CREATE TABLE totals (total BIGINT)
WITH ('connector' = 'file', 'path' = 'totals', 'format' = 'csv', 'csv.header' = 'false');
CREATE TABLE minutes (s TIMESTAMP(3), parts BIGINT, n BIGINT)
WITH ('connector' = 'file', 'path' = 'minutes', 'format' = 'csv', 'csv.header' = 'false');
CREATE TABLE odd (v BIGINT)
WITH ('connector' = 'file', 'path' = 'odd', 'format' = 'csv', 'csv.header' = 'false');

CREATE VIEW per_10 AS
    SELECT window_start AS s, window_time AS t, COUNT(*) AS n, SUM(v) AS total, MAX(v) AS unused
    FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '10' SECOND))
    GROUP BY window_start, window_end, window_time;

EXECUTE STATEMENT SET BEGIN
    INSERT INTO many SELECT s, n FROM per_10 WHERE n > 2;
    INSERT INTO totals SELECT total FROM per_10;
    INSERT INTO minutes
        SELECT window_start, COUNT(*), SUM(n)
        FROM TABLE(TUMBLE(TABLE per_10, DESCRIPTOR(t), INTERVAL '1' MINUTE))
        GROUP BY window_start, window_end;
    -- Records, the late ones too.
    INSERT INTO odd SELECT v FROM events WHERE v < 20 AND MOD(v, 2) = 1 OR v > 200;
END;
