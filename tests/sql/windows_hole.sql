-- answer: by hand. A year without records: exactly the windows that have some, also those whose last pane is empty.
-- Windows of 6 s every 2 s: 5 is in those that begin at 0, 2 and 4; 5.5 too; 11 in those at 6, 8 and 10. Steps of 2 s
-- up to 8 s: 5 is in [0, 6) and [0, 8), 5.5 too, 11 in [8, 12), [8, 14) and [8, 16). Sessions with gaps of 5 s.
CREATE TABLE hole (ts TIMESTAMP(3), k STRING, WATERMARK FOR ts AS ts)
WITH ('connector' = 'file', 'path' = 'data/hole.csv', 'format' = 'csv');

SELECT window_start, window_end, k, COUNT(*) AS n
FROM TABLE(HOP(TABLE hole, DESCRIPTOR(ts), INTERVAL '2' SECOND, INTERVAL '6' SECOND))
GROUP BY window_start, window_end, k;

SELECT window_start, window_end, COUNT(*) AS n
FROM TABLE(CUMULATE(TABLE hole, DESCRIPTOR(ts), INTERVAL '2' SECOND, INTERVAL '8' SECOND))
GROUP BY window_start, window_end;

SELECT window_start, window_end, COUNT(*) AS n
FROM TABLE(SESSION(TABLE hole, DESCRIPTOR(ts), INTERVAL '5' SECOND))
GROUP BY window_start, window_end;
