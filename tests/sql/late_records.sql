-- answer: by hand. Watermark 5 s behind. Its value just before each record, and the end of the record's
-- window (a record is late if its window's end is not beyond that watermark):
--   v      ts   watermark  end
--   1   5.000   none        10
--   2  12.000    0.000      20
--   4   9.999    7.000      10   in time
--   8  15.000    7.000      20
--  16   9.000   10.000      10   late: the watermark has just reached the end
--  32  10.000   10.000      20
--  64  25.001   10.000      30
-- 128  19.999   20.001      20   late
-- 256  20.000   20.001      30
-- 512   1.000   20.001      10   late
-- counters: records=10 late_records=3 windows=3
CREATE TABLE events (
    ts TIMESTAMP(3), v BIGINT, WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH ('connector' = 'file', 'path' = 'data/late.csv', 'format' = 'csv');

SELECT window_start, COUNT(*) AS n, SUM(v) AS total
FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '10' SECOND))
GROUP BY window_start, window_end;
