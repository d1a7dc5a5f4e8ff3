-- answer: by hand. On 27 October 2024, at 01:00 UTC, clocks in Zurich go from 3 to 2. Joins by time go by instants: the last
-- rate before 00:50 is that of 00:20, before 01:10 that of 01:05, before 01:50 that of 01:30. Within 20 minutes after
-- 00:50 comes 01:05, after 01:10 comes 01:30, after 01:50 nothing. Up to 21 minutes apart are 00:50 and 01:05 (also of
-- the second), 01:10 and 01:30, 01:50 and 01:30.
CREATE TABLE orders (ts TIMESTAMP_LTZ(3), k INT, id INT, WATERMARK FOR ts AS ts)
WITH ('connector' = 'file', 'format' = 'csv', 'path' = 'data/zoned_orders.csv');
CREATE TABLE rates (ts TIMESTAMP_LTZ(3), k INT, rate INT, WATERMARK FOR ts AS ts, PRIMARY KEY (k) NOT ENFORCED)
WITH ('connector' = 'file', 'format' = 'csv', 'path' = 'data/zoned_rates.csv');
SET 'time_zone' = 'Europe/Zurich';

SELECT o.id, r.rate FROM orders AS o LEFT JOIN rates FOR SYSTEM_TIME AS OF o.ts AS r ON o.k = r.k;

SELECT o.id, r.rate FROM orders AS o
LEFT JOIN rates AS r ON o.k = r.k AND r.ts BETWEEN o.ts AND o.ts + INTERVAL '20' MINUTE;

SET 'join.within' = '21 minutes';

SELECT o.id, r.rate FROM orders AS o LEFT JOIN rates AS r ON o.k = r.k;
