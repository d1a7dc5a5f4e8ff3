-- answer: by hand, from the table in late_records.sql. With a second more, 16 and 128 are in time, and
-- 512 is still late. Only the table's records can be: what its windows give comes in their order.
--   [ 0, 10)  1+4+16=21        [10, 20)  2+8+32+128=170        [20, 30)  64+256=320
-- counters: records=10 late_records=1 windows=2 inner_rows=3
-- exchange: refused
CREATE TABLE events (
    ts TIMESTAMP(3), v BIGINT, WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH ('connector' = 'file', 'path' = 'data/late.csv', 'format' = 'csv');

SET 'allowed_lateness' = '1 s';

CREATE VIEW per_10 AS
    SELECT window_time, COUNT(*) AS n, SUM(v) AS total
    FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '10' SECOND))
    GROUP BY window_start, window_end, window_time;

SELECT window_start, COUNT(*) AS parts, SUM(n) AS n, SUM(total) AS total
FROM TABLE(TUMBLE((SELECT window_time AS at_, n, total FROM per_10), DESCRIPTOR(at_), INTERVAL '20' SECOND))
GROUP BY window_start, window_end;
