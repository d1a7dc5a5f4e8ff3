-- answer: by hand. A view over a table, a view over a view, a window over a view, a subquery and a CTE.
CREATE TABLE clicks (
    ts TIMESTAMP(3), user_name STRING, kind STRING, cost INT, WATERMARK FOR ts AS ts
) WITH ('connector' = 'file', 'path' = 'data/clicks.csv', 'format' = 'csv');

CREATE VIEW paid AS SELECT ts, user_name, cost * 100 AS cents FROM clicks WHERE cost IS NOT NULL;
CREATE VIEW dear AS SELECT ts, UPPER(user_name) AS who, cents FROM paid WHERE cents > 200;
CREATE VIEW per_window AS
    SELECT window_start, who, SUM(cents) AS total
    FROM TABLE(TUMBLE(TABLE dear, DESCRIPTOR(ts), INTERVAL '10' SECOND))
    GROUP BY window_start, window_end, who;

SELECT window_start, who, total FROM per_window WHERE total >= 700;

SELECT who, n + 1 AS n1
FROM (SELECT who, window_start, COUNT(*) AS n
      FROM TABLE(TUMBLE(TABLE dear, DESCRIPTOR(ts), INTERVAL '10' SECOND))
      GROUP BY window_start, window_end, who)
WHERE who <> 'ANN';

WITH few AS (SELECT ts, kind FROM clicks WHERE user_name = 'cid')
SELECT kind, COUNT(*) AS n
FROM TABLE(TUMBLE(TABLE few, DESCRIPTOR(ts), INTERVAL '10' SECOND))
GROUP BY window_start, window_end, kind;
