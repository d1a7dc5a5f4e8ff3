-- answer: by hand: Python's json, with Flink's rules (SqlJsonUtils): a value that is not there is empty when lax and an
-- error when strict, which is the default; null is empty; of the same names the last counts.
CREATE TABLE texts (id INT, j STRING) WITH ('connector' = 'file', 'path' = 'data/json_texts.csv', 'format' = 'csv');

SELECT id, JSON_VALUE(j, '$.a.b[0]') AS `ab0`,
       JSON_VALUE(j, 'lax $.a' DEFAULT 'empty' ON EMPTY DEFAULT 'error' ON ERROR) AS `a`,
       JSON_VALUE(j, 'strict $.a' DEFAULT 'empty' ON EMPTY DEFAULT 'error' ON ERROR) AS `sa`,
       JSON_VALUE(j, '$[''k k'']') AS `kk`,
       JSON_VALUE(j, '$[1]') AS `one`,
       JSON_VALUE(j, '$.a.b[3]' DEFAULT 'empty' ON EMPTY) AS `nul`,
       JSON_VALUE(j, '$' NULL ON EMPTY DEFAULT '!' ON ERROR) AS `whole`
FROM texts;
SELECT id, JSON_VALUE(j, '$.n' RETURNING INT) AS `i`,
       JSON_VALUE(j, '$.n' RETURNING BIGINT DEFAULT -1 ON ERROR) AS `bi`,
       JSON_VALUE(j, '$.big' RETURNING BIGINT) AS `big`,
       JSON_VALUE(j, 'lax $.f' RETURNING DOUBLE DEFAULT 0.5 ON EMPTY NULL ON ERROR) AS `d`,
       JSON_VALUE(j, '$.b' RETURNING BOOLEAN) AS `b`,
       JSON_VALUE(j, '$.a.b[2]' RETURNING BOOLEAN) AS `t`,
       JSON_VALUE(j, '$.n' RETURNING INT) + 1 AS `more`
FROM texts;
SELECT id, JSON_EXISTS(j, '$.a') AS `e`,
       JSON_EXISTS(j, 'lax $.a.b[3]' TRUE ON ERROR) AS `le`,
       JSON_EXISTS(j, '$.a.b[4].c' UNKNOWN ON ERROR) AS `u`,
       j IS JSON AS `j`,
       j IS JSON VALUE AS `v`,
       j IS JSON OBJECT AS `o`,
       j IS JSON ARRAY AS `ar`,
       j IS JSON SCALAR AS `s`,
       j IS NOT JSON AS `no`,
       j IS NOT NULL AND j IS NOT JSON OBJECT AS `both`
FROM texts;
SELECT JSON_VALUE('{"a": true}', '$.a') AS a, JSON_VALUE('{"a": true}', '$.a' RETURNING BOOLEAN) AS b, JSON_VALUE('{"a": true}', 'lax $.b' DEFAULT FALSE ON EMPTY) AS c,
       JSON_VALUE('{"a": true}', 'strict $.b' DEFAULT FALSE ON ERROR) AS d, JSON_VALUE('{"a.b": [0.998,0.996]}', '$.["a.b"][0]' RETURNING DOUBLE) AS e,
       JSON_VALUE('{"contains blank": "right"}', 'strict $.[''contains blank'']' NULL ON EMPTY DEFAULT 'wrong' ON ERROR) AS f, JSON_VALUE(NULL, '$') AS g,
       JSON_EXISTS('{"a": true}', 'strict $.b' TRUE ON ERROR) AS h, NULL IS JSON AS i;
SELECT JSON_VALUE(j, '$.n') AS n, COUNT(*) AS c FROM texts WHERE JSON_EXISTS(j, '$.n') GROUP BY JSON_VALUE(j, '$.n') ORDER BY n LIMIT 2;
