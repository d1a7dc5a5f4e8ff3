-- answer: by hand. Quoted names, names in mixed case, and a key that is an expression over the time.
CREATE TABLE clicks (
    ts TIMESTAMP(3), user_name STRING, kind STRING, cost INT, WATERMARK FOR ts AS ts
) WITH ('connector' = 'file', 'path' = 'data/clicks.csv', 'format' = 'csv');

SELECT window_start AS `Window Start`, EXTRACT(SECOND FROM ts) >= 2 AS "LateHalf", COUNT(*) AS N
FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '10' SECOND))
WHERE ts < TIMESTAMP '2024-01-01 00:00:10'
GROUP BY window_start, window_end, EXTRACT(SECOND FROM ts) >= 2;
