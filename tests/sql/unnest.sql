-- answer: by hand.
-- exchange: refused
CREATE TABLE clicks (
    ts TIMESTAMP(3), user_name STRING, kind STRING, cost INT, WATERMARK FOR ts AS ts
) WITH ('connector' = 'file', 'path' = 'data/clicks.csv', 'format' = 'csv');

SELECT user_name, x, n FROM clicks
CROSS JOIN UNNEST(ARRAY[kind, user_name]) WITH ORDINALITY AS u (x, n) WHERE cost > 6;

-- A record without elements stays, with NULL.
SELECT user_name, x, n FROM clicks
LEFT JOIN UNNEST(CASE WHEN cost > 7 THEN ARRAY[cost, NULL] END) WITH ORDINALITY AS u (x, n) ON TRUE
WHERE cost > 6;

-- Fields of rows, and keys and values of maps.
SELECT w, k FROM clicks, UNNEST(ARRAY[ROW(user_name, 1), ROW(kind, 2)]) AS u (w, k)
WHERE k = 2 AND cost >= 8;
SELECT u.* FROM clicks CROSS JOIN UNNEST(MAP['cost', cost, kind, 0]) AS u WHERE cost = 5;

-- Elements of elements.
SELECT user_name, a, b FROM clicks
CROSS JOIN UNNEST(ARRAY[ARRAY[1, cost], ARRAY[2]]) AS u (l)
CROSS JOIN UNNEST(u.l) WITH ORDINALITY AS w (b, a) WHERE cost = 9;

-- Nothing of the elements but their number.
SELECT COUNT(*) AS n, COUNT(x) AS costs FROM clicks CROSS JOIN UNNEST(ARRAY[cost, cost]) AS u (x);

SELECT word, COUNT(*) AS n
FROM (SELECT kind AS k FROM clicks UNION ALL SELECT user_name FROM clicks) AS both_columns
CROSS JOIN UNNEST(ARRAY[k, 'x']) AS u (word)
GROUP BY word ORDER BY n DESC, word;

SELECT user_name, x FROM clicks, UNNEST(ARRAY[1, 2, 3]) AS x LIMIT 4;

-- A query of a UNION ALL may be an UNNEST: of each record the rows of the first query first.
SELECT x FROM clicks CROSS JOIN UNNEST(ARRAY[cost, 0]) AS x WHERE cost > 7
UNION ALL SELECT -cost FROM clicks WHERE cost > 7;
