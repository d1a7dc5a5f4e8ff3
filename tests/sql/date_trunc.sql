-- answer: by Python's datetime. Times far from today are cut to units of the calendar as others are.
CREATE TABLE years (t TIMESTAMP(3)) WITH ('connector' = 'file', 'path' = 'data/years.csv', 'format' = 'csv');

SELECT FLOOR(t TO WEEK) AS week, DATE_TRUNC('month', t) AS month, FLOOR(t TO QUARTER) AS quarter, DATETRUNC('YEAR', t) AS year,
       FLOOR(t TO HOUR) AS hour, FLOOR(CAST(t AS DATE) TO MONTH) AS of_date, DATE_TRUNC('day', CAST(t AS DATE)) AS day,
       EXTRACT(YEAR FROM t) AS y
FROM years;
