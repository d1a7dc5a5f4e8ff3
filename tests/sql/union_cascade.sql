-- answer: by hand, from the windows of 10 s in union_windows.
-- exchange: refused
CREATE TABLE clicks (
    ts TIMESTAMP(3), user_name STRING, kind STRING, cost INT, WATERMARK FOR ts AS ts
) WITH ('connector' = 'file', 'path' = 'data/clicks.csv', 'format' = 'csv');
CREATE TABLE events (
    ts TIMESTAMP(3), v BIGINT, WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH ('connector' = 'file', 'path' = 'data/late.csv', 'format' = 'csv');

CREATE VIEW of_events AS
    SELECT window_start AS s, window_end AS e, window_time AS t, COUNT(*) AS n
    FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '10' SECOND))
    GROUP BY window_start, window_end, window_time;
CREATE VIEW of_clicks AS
    SELECT window_start AS s, window_end AS e, window_time AS t, COUNT(*) AS n
    FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '10' SECOND))
    GROUP BY window_start, window_end, window_time;

-- Window by window, and of each those of the first query first.
SELECT 'events' AS what, s, n FROM of_events
UNION ALL SELECT 'clicks', s, n FROM of_clicks WHERE n > 1;

-- Rows of the same windows keep them.
SELECT s, SUM(n) AS n, COUNT(*) AS parts
FROM (SELECT s, e, n FROM of_events UNION ALL SELECT s, e, n FROM of_clicks) GROUP BY s, e;

-- Longer windows over results of windows and over records: [0, 20) has 2+3 and 5+3.
SELECT window_start, SUM(n) AS n, COUNT(*) AS parts
FROM TABLE(TUMBLE((SELECT t, n FROM of_events UNION ALL SELECT ts, 1 FROM clicks),
                  DESCRIPTOR(t), INTERVAL '20' SECOND))
GROUP BY window_start, window_end;

-- Over all there is: 2 3 2 and 5 3 1.
SELECT n, COUNT(*) AS windows FROM (SELECT n FROM of_events UNION ALL SELECT n FROM of_clicks)
GROUP BY n ORDER BY n;
