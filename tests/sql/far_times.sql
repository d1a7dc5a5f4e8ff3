-- answer: by hand. Nanoseconds reach from 1677 to 2262. A time beyond is compared with them all the same.
-- exchange: refused
CREATE TABLE far (ts TIMESTAMP(3), n TIMESTAMP(9), at TIMESTAMP_LTZ(3)) WITH ('connector' = 'file', 'format' = 'csv', 'path' = 'data/far_times.csv');
SELECT ts > n AS later, ts = n AS same, ts < n AS earlier, ts IN (n) AS one_of, ts BETWEEN n AND n AS between_, CASE ts WHEN n THEN 1 ELSE 0 END AS case_ FROM far;
SELECT ts > TIMESTAMP '2024-01-01 00:00:00.123456789' AS later, ts > CURRENT_TIMESTAMP AS future, at < NOW() AS past FROM far;
SELECT COUNT(*) AS pairs FROM far AS a JOIN far AS b ON a.ts > b.n;
