-- answer: by hand. Distinct values of sessions, of the records of sessions_shared.sql. The second
-- grouping, of which these are made, gives sessions together that end in the same 10 s.
-- Of ann: 0, 8, 18 (10 after 8) are [0, 28), 29 is [29, 39).
-- Of bob: 5 and 24 are 19 apart; 14.5, of page b, joins them: [5, 34). Of cid: 40 is [40, 50), 70 and 71 are
-- [70, 81). Of no one, which is a partition like others: 2, 12 and 12 are [2, 22), 30 is [30, 40). Of all
-- together: [0, 50) and [70, 81).
-- exchange: refused
-- counters: records=56 late_records=0
CREATE TABLE visits (
    ts TIMESTAMP(3), who STRING, page STRING, ms BIGINT, WATERMARK FOR ts AS ts - INTERVAL '12' SECOND
) WITH ('connector' = 'file', 'path' = 'data/shared.csv', 'format' = 'csv');

-- Distinct values of a session.
SELECT window_start, window_end, who, COUNT(*) AS n, COUNT(DISTINCT page) AS pages,
       COUNT(DISTINCT ms) AS times, SUM(DISTINCT ms) AS total
FROM TABLE(SESSION(TABLE visits PARTITION BY who, DESCRIPTOR(ts), INTERVAL '10' SECOND))
GROUP BY window_start, window_end, who;

-- Distinct values of the records that pass a condition, and of some of those.
SELECT window_start, window_end, who, COUNT(*) AS n, COUNT(DISTINCT ms) FILTER (WHERE ms > 2) AS times
FROM TABLE(SESSION(TABLE visits PARTITION BY who, DESCRIPTOR(ts), INTERVAL '10' SECOND))
WHERE page <> 'a'
GROUP BY window_start, window_end, who;

-- Groups of one session of all.
SELECT window_start, window_end, ms / 5 AS fives, COUNT(DISTINCT page) AS pages
FROM TABLE(SESSION(TABLE visits, DESCRIPTOR(ts), INTERVAL '10' SECOND))
GROUP BY window_start, window_end, ms / 5;

-- The older way to write sessions.
SELECT SESSION_START(ts, INTERVAL '10' SECOND) AS s, who, COUNT(DISTINCT page) AS pages
FROM visits
GROUP BY SESSION(ts, INTERVAL '10' SECOND), who;
