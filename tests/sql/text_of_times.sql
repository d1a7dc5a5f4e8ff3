-- answer: by hand. Text has all digits of its type, as results have, and as in Flink; FLOOR(x TO unit) is Flink's.
CREATE TABLE spans (k INT, began TIMESTAMP(6), ended TIMESTAMP(3))
WITH ('connector' = 'file', 'path' = 'data/spans.csv', 'format' = 'csv');

SELECT k, CAST(began AS STRING) AS six, 'at ' || ended AS three, CAST(CAST(ended AS TIMESTAMP_LTZ(0)) AS STRING) AS zoned,
       CAST(TIMESTAMP '2024-01-02 03:04:05' AS STRING) AS constant, FLOOR(ended TO HOUR) AS hours
FROM spans WHERE CAST(ended AS STRING) < '2024-01-01 00:00:00.001';

SELECT CAST(ended AS STRING) AS text, COUNT(*) AS n, MAX(CAST(began AS STRING)) AS last
FROM spans WHERE k = 3 GROUP BY CAST(ended AS STRING) HAVING MAX(CAST(began AS STRING)) LIKE '2024-01-01 00%';

-- A text is read as a TIMESTAMP(3), in all years.
CREATE VIEW times AS
SELECT TO_TIMESTAMP('9999-12-31 23:59:59') AS a, TO_TIMESTAMP('1969-12-31 23:59:59.9999') AS b, TO_TIMESTAMP('9999/12/31', 'yyyy/MM/dd') AS c,
       TO_TIMESTAMP('1969-12-31 23:59:59.999900', 'yyyy-MM-dd HH:mm:ss.SSSSSS') AS d, TO_TIMESTAMP(CAST(began AS STRING)) AS e
FROM spans WHERE k = 1 AND began = ended;
DESCRIBE times;
SELECT * FROM times;
