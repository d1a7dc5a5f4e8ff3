-- answer: by hand. Per 10 s and user, records and costs (one is NULL):
--   [ 0, 10)  ann 3, 1+3=4;  bob 2, 2+5=7
--   [10, 20)  cid 2, 6+8=14; bob 1, 7
--   [20, 30)  ann 1, 9
-- A result's event time is the last millisecond of its window, so [10, 20) belongs to [0, 20).
-- exchange: refused
CREATE TABLE clicks (
    ts TIMESTAMP(3), user_name STRING, kind STRING, cost INT, WATERMARK FOR ts AS ts
) WITH ('connector' = 'file', 'path' = 'data/clicks.csv', 'format' = 'csv');

CREATE VIEW per_10 AS
    SELECT window_time AS rowtime, user_name, COUNT(*) AS n, SUM(cost) AS total
    FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '10' SECOND))
    GROUP BY window_start, window_end, window_time, user_name;

SELECT window_start, window_end, user_name, COUNT(*) AS parts, SUM(n) AS n, SUM(total) AS total
FROM TABLE(TUMBLE(TABLE per_10, DESCRIPTOR(rowtime), INTERVAL '20' SECOND))
GROUP BY window_start, window_end, user_name;

-- Three deep, with conditions on what is between. Ann's 4 are left out.
CREATE VIEW per_20 AS
    SELECT window_time AS rowtime, user_name, SUM(n) AS n
    FROM TABLE(TUMBLE(TABLE per_10, DESCRIPTOR(rowtime), INTERVAL '20' SECOND))
    WHERE total > 4
    GROUP BY window_start, window_end, window_time, user_name;

SELECT window_start, COUNT(*) AS users, SUM(n) AS n, MAX(user_name) AS last_user
FROM TABLE(TUMBLE(TABLE per_20, DESCRIPTOR(rowtime), INTERVAL '1' MINUTE))
GROUP BY window_start, window_end
HAVING COUNT(*) > 1;

-- A second window that nothing groups by.
SELECT window_start, window_end, rowtime, user_name, n
FROM TABLE(TUMBLE(TABLE per_10, DESCRIPTOR(rowtime), INTERVAL '1' MINUTE))
WHERE n > 1;
