-- answer: by hand. The watermark of each record lies beyond the end of its own window, which is late
-- for what comes after the record, but for none of the record's own elements.
--   v      ts   watermark  end
--   1   5.000   none        10
--   2  12.000   15.000      20
--   4   9.999   22.000      10   late, and so are 8, 16 and 32
--  64  25.001   25.000      30
-- 128  19.999   35.001      20   late, and so are 256 and 512
-- exchange: refused
-- counters: records=10 late_records=7 windows=3
CREATE TABLE events (
    ts TIMESTAMP(3), v BIGINT, WATERMARK FOR ts AS ts + INTERVAL '10' SECOND
) WITH ('connector' = 'file', 'path' = 'data/late.csv', 'format' = 'csv');

SELECT window_start, COUNT(*) AS n, SUM(x) AS total
FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '10' SECOND))
CROSS JOIN UNNEST(ARRAY[v, v, v]) AS x
GROUP BY window_start, window_end;
