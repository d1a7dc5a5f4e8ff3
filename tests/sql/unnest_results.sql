-- answer: by hand. UNNEST of the rows of a GROUP BY.
-- exchange: refused
CREATE TABLE clicks (
    ts TIMESTAMP(3), user_name STRING, kind STRING, cost INT, WATERMARK FOR ts AS ts
) WITH ('connector' = 'file', 'path' = 'data/clicks.csv', 'format' = 'csv');
CREATE VIEW w AS SELECT * FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '10' SECOND));
CREATE VIEW lists AS
    SELECT window_start, window_end, user_name, ARRAY_AGG(cost) AS costs
    FROM w GROUP BY window_start, window_end, user_name;
CREATE VIEW e AS SELECT window_start, window_end, user_name, c FROM lists CROSS JOIN UNNEST(costs) AS u (c);

SELECT window_start, user_name, c FROM e;

-- Positions, and a condition on the list before and on the element after.
SELECT user_name, place, c
FROM (SELECT * FROM lists WHERE CARDINALITY(costs) > 1) AS l
CROSS JOIN UNNEST(l.costs) WITH ORDINALITY AS u (c, place) WHERE c > 2;

-- Elements as a side of a join, and grouped by their window.
SELECT e.window_start, user_name, c, n
FROM e JOIN (SELECT window_start, window_end, COUNT(*) AS n FROM w GROUP BY window_start, window_end) AS g
ON e.window_start = g.window_start AND e.window_end = g.window_end WHERE c > 4;
SELECT window_start, COUNT(c) AS n FROM e GROUP BY window_start, window_end;

-- Of a grouping of all records.
SELECT user_name, kind
FROM (SELECT user_name, ARRAY_AGG(kind) AS kinds FROM clicks GROUP BY user_name) AS g
CROSS JOIN UNNEST(kinds) AS u (kind) WHERE kind <> 'view';
