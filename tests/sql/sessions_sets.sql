-- answer: by hand, of the sessions of sessions.sql (gaps of 10 s, one record late):
--   bob [1, 21.5)  a 2, a 32, b 16       ann [0, 32)  a 1, b 4, a 8, b 64       bob [30, 40)  a 256
--   cid [31, 41)   c NULL                ann [33, 43) a 128                     bob [45, 55)  b 1024
-- and, of all together, [0, 43) and [45, 55). A set that leaves the page out comes last.
-- exchange: refused
CREATE TABLE visits (
    ts TIMESTAMP(3), who STRING, page STRING, ms BIGINT, WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH ('connector' = 'file', 'path' = 'data/visits.csv', 'format' = 'csv');

SELECT window_start, window_end, who, page, GROUPING(page) AS g, COUNT(*) AS n, SUM(ms) AS total
FROM TABLE(SESSION(TABLE visits PARTITION BY who, DESCRIPTOR(ts), INTERVAL '10' SECOND))
GROUP BY window_start, window_end, who, ROLLUP (page);

-- A condition above the sessions: other pages still make them longer, and nothing is computed of them.
SELECT window_start, window_end, who, page, COUNT(*) AS n, SUM(128 / (ms - 4)) AS odd
FROM TABLE(SESSION(TABLE visits PARTITION BY who, DESCRIPTOR(ts), INTERVAL '10' SECOND))
WHERE page = 'a'
GROUP BY window_start, window_end, CUBE (page), who;

-- Sessions of all, in the order of event time.
SELECT window_start, who, COUNT(DISTINCT page) AS pages, ARRAY_AGG(ms) AS listed, COUNT(*) AS n
FROM TABLE(SESSION(TABLE visits, DESCRIPTOR(ts), INTERVAL '10' SECOND))
GROUP BY window_start, window_end, GROUPING SETS ((who), ());

-- Conditions on the key, and on the bounds.
SELECT window_start, who, page, COUNT(*) AS n
FROM TABLE(SESSION(TABLE visits PARTITION BY who, DESCRIPTOR(ts), INTERVAL '10' SECOND))
WHERE who <> 'ann' AND window_end < TIMESTAMP '2024-01-01 00:00:50'
GROUP BY window_start, window_end, who, ROLLUP (page);

-- On the bounds of windows that hop.
SELECT window_start, who, COUNT(*) AS n
FROM TABLE(HOP(TABLE visits, DESCRIPTOR(ts), INTERVAL '20' SECOND, INTERVAL '40' SECOND))
WHERE window_start >= TIMESTAMP '2024-01-01 00:00:20'
GROUP BY window_start, window_end, ROLLUP (who);
