-- answer: by hand. 36 hours are more than a day, and 2 days more than 47 hours; a month is 30 days when it is compared,
-- as in PostgreSQL and DuckDB.
CREATE TABLE spans (k INT, began TIMESTAMP(6), ended TIMESTAMP(6), took AS ended - began > INTERVAL '1' DAY)
WITH ('connector' = 'file', 'path' = 'data/spans.csv', 'format' = 'csv');

SELECT k, ended - began > INTERVAL '1' DAY AS day, took, ended - began < INTERVAL '-2159' MINUTE AS minutes,
       ended - began BETWEEN INTERVAL '26' HOUR AND INTERVAL '27' HOUR AS hours,
       ended - began IN (INTERVAL '0' SECOND, INTERVAL '-36' HOUR) AS listed,
       INTERVAL '36' HOUR > INTERVAL '1' DAY AS constant, INTERVAL '30' DAY = INTERVAL '1' MONTH AS month
FROM spans WHERE ended - began > INTERVAL '-2' DAY OR began IS NULL;

SELECT k, MAX(ended) - MIN(began) AS length, COUNT(*) AS n
FROM spans GROUP BY k HAVING MAX(ended) - MIN(began) > INTERVAL '1' DAY;

SELECT k, NULLIF(ended - began, INTERVAL '-36' HOUR) IS NULL AS nothing, NULLIF(INTERVAL '24' HOUR, INTERVAL '1' DAY) AS day,
       CASE ended - began WHEN INTERVAL '-36' HOUR THEN 'same' ELSE 'other' END AS found,
       CASE INTERVAL '1' MONTH WHEN INTERVAL '720' HOUR THEN 1 ELSE 2 END AS month,
       NULLIF(INTERVAL '36' HOUR, INTERVAL '1' DAY) AS kept
FROM spans;

SELECT k, MAX(CAST(CASE WHEN k > 0 THEN INTERVAL '24' HOUR END AS STRING)) AS hours,
       MAX(CAST(CASE WHEN k > 0 THEN INTERVAL '1' DAY END AS STRING)) AS day
FROM spans GROUP BY k HAVING COUNT(*) > 0;
