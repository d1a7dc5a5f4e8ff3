-- answer: by hand. Seconds of the records, their users and costs (one is NULL):
--   0 ann 1, 1 bob 2, 2 ann 3, 3 ann -, 4 bob 5, 10 cid 6, 11 bob 7, 12 cid 8, 20 ann 9
-- The rows of each window are put in order when it is complete; rows with equal keys come in the order of their columns.
-- Other orders are made at the end of the input.
CREATE TABLE clicks (
    ts TIMESTAMP(3), user_name STRING, kind STRING, cost INT, WATERMARK FOR ts AS ts
) WITH ('connector' = 'file', 'path' = 'data/clicks.csv', 'format' = 'csv');

-- 10 s every 5 s: to :05 and :10 ann 3, bob 2; to :15 and :20 bob 1, cid 2; to :25 and :30 ann 1.
SELECT user_name, window_end, COUNT(*) AS n
FROM TABLE(HOP(TABLE clicks, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '10' SECOND))
GROUP BY window_start, window_end, user_name
ORDER BY window_end, n DESC;

-- By what is not shown. Costs: ann 4, bob 7; bob 7, cid 14; ann 9.
SELECT user_name AS by_cost
FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '10' SECOND))
GROUP BY window_start, window_end, user_name
ORDER BY window_start, SUM(cost) DESC;

-- bob, ann; cid, bob; ann: all but the first and the last.
SELECT user_name AS some
FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '10' SECOND))
GROUP BY window_start, window_end, user_name
ORDER BY window_start, user_name DESC LIMIT 3 OFFSET 1;

-- Sessions with gaps of 10 s: ann to :13, bob to :21, cid to :22, ann to :30.
SELECT COUNT(*) AS n, user_name
FROM TABLE(SESSION(TABLE clicks PARTITION BY user_name, DESCRIPTOR(ts), INTERVAL '10' SECOND))
GROUP BY window_start, window_end, user_name
ORDER BY window_end;

-- Up to 15 s by 5 s: to :05 and :10 ann 4, bob 7; to :15 ann 4, bob 14, cid 14; to :25 and :30 ann 9.
SELECT user_name, SUM(cost) AS total, window_end
FROM TABLE(CUMULATE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '15' SECOND))
GROUP BY window_start, window_end, user_name
ORDER BY window_end, total DESC;

-- The two dearest records of each window, the dearer one last. NULL is the least.
SELECT user_name, cost FROM (
    SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY cost DESC) AS rn
    FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '10' SECOND))
) WHERE rn <= 2 ORDER BY window_end, rn DESC;

-- Not in the order of windows: all rows at the end of the input.
SELECT user_name, SUM(cost) AS total
FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '10' SECOND))
GROUP BY window_start, window_end, user_name ORDER BY total DESC;
SELECT window_end, user_name
FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '10' SECOND))
GROUP BY window_start, window_end, user_name ORDER BY window_start DESC, user_name LIMIT 3;

-- LIMIT alone takes the first rows of the first windows.
SELECT user_name AS first FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '10' SECOND))
GROUP BY window_start, window_end, user_name LIMIT 2 OFFSET 1;
