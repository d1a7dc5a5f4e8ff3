-- answer: by hand. MIN and MAX of every type that has an order.
CREATE TABLE typed (
    ts TIMESTAMP(3), flag BOOLEAN, small TINYINT, born DATE, moment TIMESTAMP(6), name STRING,
    price DECIMAL(12, 2), ratio DOUBLE, single FLOAT, code BYTES,
    WATERMARK FOR ts AS ts
) WITH ('connector' = 'file', 'path' = 'data/types.csv', 'format' = 'csv');

SELECT MIN(flag) AS flag0, MAX(flag) AS flag1, MIN(small) AS small0, MAX(small) AS small1,
       MIN(born) AS born0, MAX(born) AS born1, MIN(moment) AS moment0, MAX(moment) AS moment1,
       MIN(name) AS name0, MAX(name) AS name1, MIN(price) AS price0, MAX(price) AS price1,
       MAX(ratio) AS ratio1, MIN(single) AS single0, MAX(single) AS single1,
       MIN(code) AS code0, MAX(code) AS code1, MAX(ts) AS ts1
FROM TABLE(TUMBLE(TABLE typed, DESCRIPTOR(ts), INTERVAL '10' SECOND))
GROUP BY window_start, window_end;
