-- answer: by hand. The sum of three times 0.99… does not fit 128 bits, their mean is one of them; half a unit
-- of the last digit rounds away from zero: -0.5 to -1. 5/3 = 1.666…, and 1.666667 with six digits. With 36 digits
-- after the point and two before it, a mean gets no more digits, and still has room for 5.
CREATE TABLE numbers (k INT, small DECIMAL(38, 38), mixed DECIMAL(38, 36), whole DECIMAL(38, 0))
WITH ('connector' = 'file', 'path' = 'data/wide_decimals.csv', 'format' = 'csv');

SELECT k, AVG(small) AS small, AVG(mixed) AS mixed, AVG(whole) AS whole FROM numbers GROUP BY k;
