-- Late clicks are kept apart: what is inserted into each table is expected in a file of its own.
CREATE TABLE late (ts TIMESTAMP(3), page STRING)
WITH ('connector' = 'file', 'path' = '/var/lib/clicks/late', 'format' = 'ndjson');
CREATE TABLE clicks (ts TIMESTAMP(3), page STRING, WATERMARK FOR ts AS ts)
WITH ('connector' = 'socket', 'hostname' = 'localhost', 'port' = '9999', 'format' = 'csv',
      'late' = 'table:late');
CREATE TABLE totals (minute_of TIMESTAMP(3), clicks BIGINT)
WITH ('connector' = 'file', 'path' = '/var/lib/clicks/totals', 'format' = 'parquet');

INSERT INTO totals
SELECT window_start, COUNT(*)
FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '1' MINUTE))
GROUP BY window_start, window_end;
