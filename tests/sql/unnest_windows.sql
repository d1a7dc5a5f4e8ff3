-- answer: by hand. Each element has the time, and so the window, of its record.
-- exchange: refused
CREATE TABLE clicks (
    ts TIMESTAMP(3), user_name STRING, kind STRING, cost INT, WATERMARK FOR ts AS ts
) WITH ('connector' = 'file', 'path' = 'data/clicks.csv', 'format' = 'csv');

CREATE VIEW words AS
    SELECT ts, user_name, word FROM clicks
    CROSS JOIN UNNEST(ARRAY[kind, user_name, kind]) AS u (word);

SELECT window_start, word, COUNT(*) AS n, MAX(user_name) AS who
FROM TABLE(TUMBLE(TABLE words, DESCRIPTOR(ts), INTERVAL '10' SECOND))
GROUP BY window_start, window_end, word;

-- The other way round: elements of the records of windows.
SELECT window_start, word, COUNT(*) AS n
FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '10' SECOND))
CROSS JOIN UNNEST(ARRAY[kind, 'all']) AS u (word)
WHERE cost > 2
GROUP BY window_start, window_end, word;

-- Without the time among the columns, and with a window over the result.
SELECT s, COUNT(*) AS words, SUM(n) AS n
FROM (SELECT window_start AS s, window_end AS e, word, COUNT(*) AS n
      FROM TABLE(TUMBLE(TABLE words, DESCRIPTOR(ts), INTERVAL '20' SECOND))
      WHERE CHAR_LENGTH(word) > 3
      GROUP BY window_start, window_end, word)
GROUP BY s, e;
