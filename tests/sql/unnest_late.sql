-- answer: by hand, from late_records: a late record is dropped once, with all of its elements, and of
-- three elements of the others the condition leaves two.
-- exchange: refused
-- counters: records=10 late_records=3 windows=3
CREATE TABLE events (
    ts TIMESTAMP(3), v BIGINT, WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH ('connector' = 'file', 'path' = 'data/late.csv', 'format' = 'csv');
CREATE VIEW elements AS
    SELECT ts, x FROM events CROSS JOIN UNNEST(ARRAY[v, 0, v]) AS x WHERE x > 0;

SELECT window_start, COUNT(*) AS n, SUM(x) AS total
FROM TABLE(TUMBLE(TABLE elements, DESCRIPTOR(ts), INTERVAL '10' SECOND))
GROUP BY window_start, window_end;
