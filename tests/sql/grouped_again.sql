-- answer: by hand. Per 10 s, user and kind:
--   [ 0, 10)  ann view 2, ann click 1, bob click 1, bob buy 1
--   [10, 20)  cid view 1, bob view 1, cid click 1
--   [20, 30)  ann view 1
-- exchange: refused
CREATE TABLE clicks (
    ts TIMESTAMP(3), user_name STRING, kind STRING, cost INT, WATERMARK FOR ts AS ts
) WITH ('connector' = 'file', 'path' = 'data/clicks.csv', 'format' = 'csv');

CREATE VIEW kinds AS
    SELECT window_start, window_end, user_name, kind, COUNT(*) AS n
    FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '10' SECOND))
    GROUP BY window_start, window_end, user_name, kind;

-- Per window again.
SELECT window_start, COUNT(*) AS kinds, MAX(n) AS most, SUM(n) AS n
FROM kinds
GROUP BY window_start, window_end;

SELECT window_end, user_name, COUNT(*) AS kinds
FROM kinds
WHERE n < 2
GROUP BY window_start, window_end, user_name
HAVING COUNT(*) > 1;

-- Over all windows, at the end of the input.
SELECT user_name, COUNT(*) AS kinds, MAX(window_end) AS last_end
FROM kinds
GROUP BY user_name;

-- Without any window.
SELECT n > 2 AS many, COUNT(*) AS users, SUM(n) AS total
FROM (SELECT user_name, COUNT(*) AS n FROM clicks GROUP BY user_name)
GROUP BY n > 2;

SELECT COUNT(*) AS users, MAX(n) AS most
FROM (SELECT user_name, COUNT(*) AS n FROM clicks GROUP BY user_name);

SELECT DISTINCT window_start, n FROM kinds;

SELECT DISTINCT kind FROM kinds;

-- A count of nothing is a row, also for what counts it.
SELECT n, COUNT(*) AS counts
FROM (SELECT COUNT(*) AS n FROM clicks WHERE cost > 100)
GROUP BY n;
