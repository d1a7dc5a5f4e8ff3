-- answer: by hand. CASE as a key, COALESCE as an argument, expressions over aggregates.
CREATE TABLE clicks (
    ts TIMESTAMP(3), user_name STRING, kind STRING, cost INT, WATERMARK FOR ts AS ts
) WITH ('connector' = 'file', 'path' = 'data/clicks.csv', 'format' = 'csv');

SELECT window_start,
       CASE WHEN kind = 'view' THEN 'look' WHEN kind = 'buy' THEN NULL ELSE 'act' END AS what,
       SUM(COALESCE(cost, 100)) AS total,
       SUM(cost) * 2 + COUNT(*) AS mixed,
       CASE WHEN COUNT(*) > 1 THEN 'many' ELSE 'one' END AS size
FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '10' SECOND))
GROUP BY window_start, window_end,
         CASE WHEN kind = 'view' THEN 'look' WHEN kind = 'buy' THEN NULL ELSE 'act' END;
