-- answer: by hand: Python's urllib.parse, zoneinfo and datetime, with Flink's rules (java.net.URL, SqlFunctionUtils.strToMap)
CREATE TABLE urls (id INT, u STRING) WITH ('connector' = 'file', 'path' = 'data/urls.csv', 'format' = 'csv');

SELECT id, PARSE_URL(u, 'PROTOCOL') AS p0, PARSE_URL(u, 'AUTHORITY') AS a1, PARSE_URL(u, 'USERINFO') AS u2, PARSE_URL(u, 'HOST') AS h3,
       PARSE_URL(u, 'PATH') AS p4, PARSE_URL(u, 'QUERY') AS q5, PARSE_URL(u, 'FILE') AS f6, PARSE_URL(u, 'REF') AS r7
FROM urls;
SELECT id, PARSE_URL(u, 'QUERY', 'id') AS id_of, PARSE_URL(u, 'QUERY', 'x') AS x, PARSE_URL(u, 'HOST', 'id') AS n, PARSE_URL(u, 'host') AS m FROM urls;
SELECT STR_TO_MAP('k1=v1,k2=v2') AS a, STR_TO_MAP('k1:v1;k2:v2:x', ';', ':') AS b, STR_TO_MAP('k,,k2=,k=1,,') AS c, STR_TO_MAP('') AS d,
       STR_TO_MAP(CAST(NULL AS STRING)) AS e, STR_TO_MAP('a=1  b=2', ' +') AS f, STR_TO_MAP('a=1', CAST(NULL AS STRING), '=') AS g
FROM urls WHERE id = 1;
SELECT id, STR_TO_MAP(PARSE_URL(u, 'QUERY'), '&')['id'] AS v, CARDINALITY(STR_TO_MAP(PARSE_URL(u, 'QUERY'), '&', '=')) AS n FROM urls WHERE id < 7;
