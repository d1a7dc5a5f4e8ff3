-- answer: by hand. Gaps of 10 s. Seconds of the records in the order of the file, who and page, and the
-- watermark just before each (5 s behind):
--    0   ann a        12   ann a  -1      22   ann b   7      31   cid c  28
--    1   bob a  -5    11.5 bob b   7      33   ann a  17      27   ann a  28   late: 27 < 28
--    4   ann b  -4     8   bob a   7      30   bob a  28      45   bob b  28
-- Of ann: 0, 4, 12, 22 (10 after 12, still within the gap) are [0, 32); 33 is [33, 43): 27 would have
-- joined the two. Of bob: 1, 8, 11.5 are [1, 21.5), joined by 8, which comes last; 30 is [30, 40), 45 is
-- [45, 55). Of cid: 31 is [31, 41). Of all together: [0, 43) and [45, 55).
-- Sessions come in the order of their ends.
CREATE TABLE visits (
    ts TIMESTAMP(3), who STRING, page STRING, ms BIGINT, WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH ('connector' = 'file', 'path' = 'data/visits.csv', 'format' = 'csv');

SELECT window_start, window_end, window_time, who, COUNT(*) AS n, SUM(ms) AS total
FROM TABLE(SESSION(TABLE visits PARTITION BY who, DESCRIPTOR(ts), INTERVAL '10' SECOND))
GROUP BY window_start, window_end, window_time, who;

-- One more key: pages share the session.
SELECT window_start, page, who, COUNT(*) AS n, SUM(ms) AS total
FROM TABLE(SESSION(TABLE visits PARTITION BY who, DESCRIPTOR(ts), INTERVAL '10' SECOND))
GROUP BY page, window_start, window_end, who;

-- A condition above the sessions: other pages still make them longer.
SELECT window_start, window_end, who, COUNT(*) AS n, SUM(128 / (ms - 4)) AS odd
FROM TABLE(SESSION(TABLE visits PARTITION BY who, DESCRIPTOR(ts), INTERVAL '10' SECOND))
WHERE page = 'a'
GROUP BY window_start, window_end, who;

-- The same below, for all together: 0, 1, 8, 12 and 30, 33.
SELECT window_start, window_end, who, COUNT(*) AS n
FROM TABLE(SESSION(
    (SELECT * FROM visits WHERE page = 'a'), DESCRIPTOR(ts), INTERVAL '10' SECOND))
GROUP BY window_start, window_end, who;

-- And for each: ann's 0 and 12, without 4 between them, are two sessions.
WITH a AS (SELECT * FROM visits WHERE page = 'a')
SELECT window_start, window_end, who, COUNT(*) AS n
FROM TABLE(SESSION(TABLE a PARTITION BY who, DESCRIPTOR(ts), INTERVAL '10' SECOND))
GROUP BY window_start, window_end, who;

-- Sessions of all.
SELECT window_start, window_end, COUNT(*) AS n, SUM(ms) AS total
FROM TABLE(SESSION(TABLE visits, DESCRIPTOR(ts), INTERVAL '10' SECOND))
GROUP BY window_start, window_end;

-- Conditions on the key, and on the bounds.
SELECT window_start, who, COUNT(*) AS n
FROM TABLE(SESSION(TABLE visits PARTITION BY who, DESCRIPTOR(ts), INTERVAL '10' SECOND))
WHERE who <> 'ann' AND window_end < TIMESTAMP '2024-01-01 00:00:50'
GROUP BY window_start, who;
