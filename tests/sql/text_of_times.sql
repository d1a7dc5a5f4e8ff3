-- answer: by hand. Text has all digits of its type, as results have, and as in Flink; FLOOR(x TO unit) is Flink's.
CREATE TABLE spans (k INT, began TIMESTAMP(6), ended TIMESTAMP(3))
WITH ('connector' = 'file', 'path' = 'data/spans.csv', 'format' = 'csv');

SELECT k, CAST(began AS STRING) AS six, 'at ' || ended AS three, CAST(CAST(ended AS TIMESTAMP_LTZ(0)) AS STRING) AS zoned,
       CAST(TIMESTAMP '2024-01-02 03:04:05' AS STRING) AS constant, FLOOR(ended TO HOUR) AS hours
FROM spans WHERE CAST(ended AS STRING) < '2024-01-01 00:00:00.001';

SELECT CAST(ended AS STRING) AS text, COUNT(*) AS n, MAX(CAST(began AS STRING)) AS last
FROM spans WHERE k = 3 GROUP BY CAST(ended AS STRING) HAVING MAX(CAST(began AS STRING)) LIKE '2024-01-01 00%';
