-- answer: by hand. A group whose filter lets nothing through still has a row: COUNT 0, SUM NULL.
CREATE TABLE clicks (
    ts TIMESTAMP(3), user_name STRING, kind STRING, cost INT, WATERMARK FOR ts AS ts
) WITH ('connector' = 'file', 'path' = 'data/clicks.csv', 'format' = 'csv');

SELECT window_start, user_name, COUNT(*) AS n,
       COUNT(*) FILTER (WHERE kind = 'click') AS clicks,
       SUM(cost) FILTER (WHERE kind <> 'view') AS spent,
       MAX(kind) FILTER (WHERE cost > 4) AS dear
FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '10' SECOND))
GROUP BY window_start, window_end, user_name;
