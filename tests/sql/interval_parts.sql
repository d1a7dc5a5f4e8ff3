-- answer: by hand. EXTRACT of an interval is exact: a part is what is left of the next longer one, with the interval's
-- sign, as in Calcite's convertlets (getFactor); EPOCH is the whole in seconds. Milliseconds and finer parts of a time are
-- those within its second, as in Flink's DateTimeUtils. One difference is 33 days, another nearly minus sixty.
CREATE TABLE pairs (id INT, a TIMESTAMP(3), b TIMESTAMP(6), d DATE)
WITH ('connector' = 'file', 'path' = 'data/time_pairs.csv', 'format' = 'csv');

SELECT id, EXTRACT(EPOCH FROM b - a) AS s, EXTRACT(DAY FROM b - a) AS days, EXTRACT(HOUR FROM b - a) AS hours,
       EXTRACT(MINUTE FROM b - a) AS minutes, EXTRACT(SECOND FROM b - a) AS seconds,
       EXTRACT(MILLISECOND FROM b - a) AS ms, EXTRACT(MICROSECOND FROM b - a) AS us,
       EXTRACT(MILLISECOND FROM a) AS a_ms, EXTRACT(MICROSECOND FROM b) AS b_us, SECOND(b) AS b_s
FROM pairs;
SELECT EXTRACT(HOUR FROM INTERVAL '25' HOUR) AS h, EXTRACT(DAY FROM INTERVAL '25' HOUR) AS d, EXTRACT(EPOCH FROM INTERVAL '1.5' SECOND) AS s,
       EXTRACT(YEAR FROM INTERVAL '14' MONTH) AS y, EXTRACT(MONTH FROM INTERVAL '14' MONTH) AS m
FROM pairs WHERE id = 1;
