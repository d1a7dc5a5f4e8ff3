-- answer: by hand. Columns are found by name whatever their order and case; a byte order mark, Windows line
-- ends, a blank line, a line end inside quotes, zones turned into UTC, digits beyond the declared three
-- cut off.
CREATE TABLE messy (
    ts TIMESTAMP_LTZ(3), name STRING, v BIGINT, WATERMARK FOR ts AS ts
) WITH ('connector' = 'file', 'path' = 'data/messy.csv', 'format' = 'csv', 'csv.header' = 'true');

SELECT ts, name, v FROM messy;
