-- answer: by hand. Rows, arrays and maps are made of columns, pass views, windows, UNION ALL and
-- ORDER BY, and come out as JSON.
-- exchange: refused
CREATE TABLE clicks (
    ts TIMESTAMP(3), user_name STRING, kind STRING, cost INT, WATERMARK FOR ts AS ts
) WITH ('connector' = 'file', 'path' = 'data/clicks.csv', 'format' = 'csv');

CREATE VIEW events AS
    SELECT ts, ROW(user_name, cost) AS who, ARRAY[kind, 'x', user_name] AS words,
           MAP['cost', cost, kind, 1] AS numbers
    FROM clicks;

SELECT ts, who, words, numbers FROM events
WHERE numbers['view'] = 1 AND CARDINALITY(words) = 3 AND who.`EXPR$0` <> 'cid';

SELECT window_start, words[1] AS kind, COUNT(*) AS n, COUNT(numbers['click']) AS clicks,
       SUM(numbers['cost']) AS cost, MAX(who.`EXPR$0`) AS who
FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '10' SECOND))
GROUP BY window_start, window_end, words[1];

-- Values as a whole are counted, and made of what a window gives.
SELECT window_start, COUNT(words) AS n,
       ARRAY[MIN(numbers['cost']), MAX(numbers['cost'])] AS costs, MAP['records', COUNT(*)] AS m
FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '10' SECOND))
GROUP BY window_start, window_end;

SELECT user_name, CASE WHEN cost > 7 THEN ARRAY[cost] END AS l FROM clicks WHERE cost > 6
UNION ALL SELECT kind, ARRAY[cost, NULL] FROM clicks WHERE cost > 8;

SELECT user_name, ROW(kind, cost) AS r FROM clicks WHERE cost > 5 ORDER BY cost DESC;
