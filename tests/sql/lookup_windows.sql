-- answer: by hand. What comes of a record has its time.
-- exchange: refused
CREATE TABLE clicks (
    ts TIMESTAMP(3), user_name STRING, kind STRING, cost INT, proc AS PROCTIME(), WATERMARK FOR ts AS ts
) WITH ('connector' = 'file', 'path' = 'data/clicks.csv', 'format' = 'csv');
CREATE TABLE side (cost BIGINT, label STRING, least INT, who STRING)
WITH ('connector' = 'file', 'path' = 'data/side_costs.csv', 'format' = 'csv');

CREATE VIEW labelled AS
    SELECT ts, user_name, c.cost, label FROM clicks AS c
    JOIN side FOR SYSTEM_TIME AS OF c.proc AS s ON user_name = who;

SELECT window_start, label, COUNT(*) AS n, SUM(cost) AS cost, MAX(user_name) AS who
FROM TABLE(TUMBLE(TABLE labelled, DESCRIPTOR(ts), INTERVAL '10' SECOND))
GROUP BY window_start, window_end, label;

-- The other way round: a lookup for the records of windows, of which one condition asks.
SELECT window_start, label, COUNT(*) AS n
FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '10' SECOND)) AS w
LEFT JOIN side FOR SYSTEM_TIME AS OF w.proc AS s
ON w.cost = s.cost AND w.window_start < TIMESTAMP '2024-01-01 00:00:10'
GROUP BY window_start, window_end, label;

-- What is looked up meets other rows of its window.
CREATE VIEW l AS SELECT * FROM TABLE(TUMBLE(TABLE labelled, DESCRIPTOR(ts), INTERVAL '10' SECOND));
SELECT l.window_start, l.label, kind
FROM l JOIN TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '10' SECOND)) AS w
ON l.window_start = w.window_start AND l.window_end = w.window_end AND l.cost = w.cost
WHERE l.cost > 6;
