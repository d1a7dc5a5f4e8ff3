-- answer: by hand, as in late_records. A record is late for an interval join if its own time is behind the
-- watermark just before it:
--   v      ts   watermark
--   1   5.000   none
--   2  12.000    0.000
--   4   9.999    7.000
--   8  15.000    7.000
--  16   9.000   10.000   late
--  32  10.000   10.000   in time: just at the watermark
--  64  25.001   10.000
-- 128  19.999   20.001   late
-- 256  20.000   20.001   late, though its window of 10 s is open
-- 512   1.000   20.001   late
-- The table is read once, and what is late is counted once. Of each record in time those that follow it within
-- 3 s: after 9.999 come 10.000 and 12.000, after 10.000 comes 12.000, after 12.000 comes 15.000.
-- counters: records=10 late_records=4
CREATE TABLE events (
    ts TIMESTAMP(3), v BIGINT, WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH ('connector' = 'file', 'path' = 'data/late.csv', 'format' = 'csv');

SELECT a.v, b.v AS next
FROM events AS a LEFT JOIN events AS b ON b.ts > a.ts AND b.ts <= a.ts + INTERVAL '3' SECOND;
