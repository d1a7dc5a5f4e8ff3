-- answer: of the first time by Flink's ScalarFunctionsTest, of the others by hand. A century begins with its year 1;
-- 2024-12-30 is a Monday in the first ISO week of 2025.
CREATE VIEW times AS
SELECT t FROM (VALUES (TIMESTAMP '1996-11-10 06:55:44.333'), (TIMESTAMP '2000-12-31 23:59:59.999'),
                      (TIMESTAMP '2001-01-01 00:00:00'), (TIMESTAMP '2024-12-30 13:14:15.123456')) AS times (t);

SELECT EXTRACT(MILLENNIUM FROM t) AS millennium, EXTRACT(CENTURY FROM t) AS century, EXTRACT(DECADE FROM t) AS decade,
       EXTRACT(ISOYEAR FROM t) AS isoyear, EXTRACT(QUARTER FROM t) AS quarter, EXTRACT(WEEK FROM t) AS week,
       EXTRACT(DOY FROM t) AS doy, EXTRACT(DOW FROM t) AS dow, EXTRACT(ISODOW FROM t) AS isodow,
       EXTRACT(CENTURY FROM CAST(t AS DATE)) AS of_date, CAST(EXTRACT(EPOCH FROM t) AS BIGINT) AS epoch
FROM times;
SELECT COUNT(*) AS n FROM times WHERE EXTRACT(CENTURY FROM t) = 21;
