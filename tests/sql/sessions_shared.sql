-- answer: by hand. Gaps of 10 s; no record is late. Of ann: 0, 8, 18 (10 after 8) are [0, 28), 29 is [29, 39).
-- Of bob: 5 and 24 are 19 apart; 14.5, of page b, joins them: [5, 34). Of cid: 40 is [40, 50), 70 and 71 are
-- [70, 81). Of no one, which is a partition like others: 2, 12 and 12 are [2, 22), 30 is [30, 40). Of all
-- together: [0, 50) and [70, 81).
-- counters: records=42 late_records=0
CREATE TABLE visits (
    ts TIMESTAMP(3), who STRING, page STRING, ms BIGINT, WATERMARK FOR ts AS ts - INTERVAL '12' SECOND
) WITH ('connector' = 'file', 'path' = 'data/shared.csv', 'format' = 'csv');

SELECT window_start, window_end, who, page, COUNT(*) AS n, SUM(ms) AS total
FROM TABLE(SESSION(TABLE visits PARTITION BY who, DESCRIPTOR(ts), INTERVAL '10' SECOND))
GROUP BY window_start, window_end, who, page;

-- Records of other pages make sessions longer; sessions without a page b do not show.
SELECT window_start, window_end, who, COUNT(*) AS n, SUM(ms) AS total
FROM TABLE(SESSION(TABLE visits PARTITION BY who, DESCRIPTOR(ts), INTERVAL '10' SECOND))
WHERE page = 'b'
GROUP BY window_start, window_end, who;

-- One session of all, which groups of keys of any type share.
SELECT window_start, window_end, who, COUNT(*) AS n
FROM TABLE(SESSION(TABLE visits, DESCRIPTOR(ts), INTERVAL '10' SECOND))
GROUP BY window_start, window_end, who;
