-- answer: by hand. With an offset of 3 seconds windows start at …:53, 0:03, 0:13, 0:33.
CREATE TABLE edges (
    ts TIMESTAMP(3),
    v BIGINT,
    WATERMARK FOR ts AS ts
) WITH ('connector' = 'file', 'path' = 'data/edges.csv', 'format' = 'csv');

SELECT window_start, window_end, SUM(v) AS total
FROM TABLE(TUMBLE(TABLE edges, DESCRIPTOR(ts), INTERVAL '10' SECOND, INTERVAL '3' SECOND))
GROUP BY window_start, window_end;

SELECT window_start, SUM(v) AS total
FROM TABLE(TUMBLE(DATA => TABLE edges, TIMECOL => DESCRIPTOR(ts), SIZE => INTERVAL '1' MINUTE))
GROUP BY window_start, window_end;
