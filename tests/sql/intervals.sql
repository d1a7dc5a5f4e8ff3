-- answer: by hand. 2024 is a leap year: from the 28th of February 23:00 to the 1st of March 1:30 it is one day
-- and two and a half hours. The text is PostgreSQL's and DuckDB's.
CREATE TABLE spans (k INT, began TIMESTAMP(6), ended TIMESTAMP(6))
WITH ('connector' = 'file', 'path' = 'data/spans.csv', 'format' = 'csv');

SELECT k, ended - began AS took, INTERVAL '14' MONTH AS months, INTERVAL '-90' MINUTE AS minutes,
       MIN(ended - began) AS low, MAX(ended - began) AS high, COUNT(*) AS n
FROM spans GROUP BY k, ended - began;

SELECT k, CAST(ended - began AS STRING) AS took, CAST(INTERVAL '36' HOUR AS STRING) AS hours,
       CONCAT(INTERVAL '14' MONTH, '!') AS months, TRY_CAST(INTERVAL '-90' MINUTE AS STRING) AS minutes
FROM spans WHERE k < 3;

-- From one unit to another, as in Flink.
SELECT INTERVAL '1 02:03:04.5' DAY TO SECOND(3) AS a, INTERVAL '-1 02' DAY TO HOUR AS b, INTERVAL '90:30' MINUTE TO SECOND AS c,
       INTERVAL '1-6' YEAR TO MONTH AS d, TIMESTAMP '2024-02-28 23:00:00' + INTERVAL '1 02:30' DAY TO MINUTE AS e
FROM spans WHERE k = 1 AND began = ended;
