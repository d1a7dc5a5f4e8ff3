-- answer: by hand. Lookups for the rows of a GROUP BY, of a join and of SESSION.
-- exchange: refused
CREATE TABLE clicks (
    ts TIMESTAMP(3), user_name STRING, kind STRING, cost INT, WATERMARK FOR ts AS ts
) WITH ('connector' = 'file', 'path' = 'data/clicks.csv', 'format' = 'csv');
CREATE TABLE side (cost BIGINT, label STRING, least INT, who STRING)
WITH ('connector' = 'file', 'path' = 'data/side_costs.csv', 'format' = 'csv');
CREATE VIEW w AS SELECT * FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '10' SECOND));

-- The greatest of each window: 5, 8 and 9, of which 8 is there twice.
SELECT window_start, most, n, label
FROM (
    SELECT window_start, MAX(cost) AS most, COUNT(*) AS n, PROCTIME() AS p FROM w GROUP BY window_start, window_end
) AS g LEFT JOIN side FOR SYSTEM_TIME AS OF g.p AS s ON g.most = s.cost;

-- By user: ann 3, bob 5; cid 8, bob 7; ann 9. A condition beside the key, one above, and the window of a row.
CREATE VIEW labelled AS
    SELECT window_start, window_end, window_time, user_name, label
    FROM (
        SELECT *, PROCTIME() AS p FROM (
            SELECT window_start, window_end, window_time, user_name, MAX(cost) AS most
            FROM w GROUP BY window_start, window_end, window_time, user_name
        )
    ) AS g JOIN side FOR SYSTEM_TIME AS OF g.p AS s ON s.who = g.user_name AND s.cost <= g.most;
SELECT window_start, user_name, label FROM labelled WHERE label <> 'one';

-- Windows over what comes out, by window_time; and the same windows again.
SELECT window_start, COUNT(*) AS n, MIN(label) AS first_label
FROM TABLE(TUMBLE((SELECT window_time AS at, label FROM labelled), DESCRIPTOR(at), INTERVAL '20' SECOND))
GROUP BY window_start, window_end;
SELECT window_end, COUNT(DISTINCT user_name) AS users FROM labelled GROUP BY window_start, window_end;

-- What a join gives: views next to clicks of a user and a window.
SELECT j.window_start, user_name, viewed, label
FROM (
    SELECT v.window_start, v.user_name, v.cost AS viewed, c.cost, PROCTIME() AS p
    FROM w AS v JOIN w AS c ON v.window_start = c.window_start AND v.window_end = c.window_end
        AND v.user_name = c.user_name
    WHERE v.kind = 'view' AND c.kind = 'click'
) AS j JOIN side FOR SYSTEM_TIME AS OF j.p AS s ON j.cost = s.cost;

-- Records of sessions: ann 0 to 3 and 20, bob 1 to 4 and 11, cid 10 to 12.
SELECT r.window_start, r.window_end, user_name, r.cost, label
FROM (
    SELECT *, PROCTIME() AS p
    FROM TABLE(SESSION(TABLE clicks PARTITION BY user_name, DESCRIPTOR(ts), INTERVAL '5' SECOND))
) AS r JOIN side FOR SYSTEM_TIME AS OF r.p AS s ON r.cost = s.cost;

-- What is looked up meets other rows of its window.
SELECT l.window_start, l.label, w.kind
FROM labelled AS l JOIN w ON l.window_start = w.window_start AND l.window_end = w.window_end AND l.user_name = w.user_name
WHERE w.kind = 'buy' OR label = 'eight';
