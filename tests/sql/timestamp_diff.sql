-- answer: by hand. TIMESTAMPDIFF counts whole units and cuts off towards zero; a month is whole when its day and time of
-- day have come, or its last day. TIMESTAMPADD stays on a shorter month's last day. As in Flink's DateTimeUtils
-- (subtractMonths, addMonths), but the same in both directions. DATEDIFF counts midnights.
CREATE TABLE pairs (id INT, a TIMESTAMP(3), b TIMESTAMP(6), d DATE)
WITH ('connector' = 'file', 'path' = 'data/time_pairs.csv', 'format' = 'csv');

SELECT id, TIMESTAMPDIFF(SECOND, a, b) AS s, TIMESTAMPDIFF(DAY, a, b) AS days, TIMESTAMPDIFF(WEEK, a, b) AS weeks,
       TIMESTAMPDIFF(MONTH, a, b) AS months, TIMESTAMPDIFF(YEAR, a, b) AS years, TIMESTAMPDIFF(MILLISECOND, a, b) AS ms,
       TIMESTAMPDIFF(MICROSECOND, a, b) AS us, TIMESTAMPDIFF(DAY, d, a) AS since_d, TIMESTAMPDIFF(YEAR, d, a) AS years_since_d,
       DATEDIFF(a, d) AS midnights
FROM pairs;
SELECT id, TIMESTAMPADD(MONTH, 1, a) AS month, TIMESTAMPADD(DAY, id, d) AS days, TIMESTAMPADD(HOUR, 1, d) AS hour,
       TIMESTAMPADD(MICROSECOND, 1, a) AS micro, TIMESTAMPADD(SECOND, -id, a) AS back
FROM pairs;
SELECT TIMESTAMPADD(WEEK, 2, DATE '2003-01-02') AS w, TIMESTAMPADD(YEAR, -1, DATE '2024-02-29') AS y,
       TIMESTAMPADD(QUARTER, 1, TIMESTAMP '2024-11-30 10:00:00') AS q,
       TIMESTAMPDIFF(QUARTER, DATE '2023-11-30', DATE '2024-02-29') AS q_whole, TIMESTAMPDIFF(MINUTE, CAST(NULL AS DATE), d) AS none
FROM pairs WHERE id = 1;
