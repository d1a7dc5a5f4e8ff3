-- answer: by hand. The LIMIT ends its own output; nine records, three of them views of ann's.
-- counters: records=9
-- outputs: first, all_of_them, anns
-- exchange: refused
CREATE TABLE clicks (
    ts TIMESTAMP(3), user_name STRING, kind STRING, cost INT, WATERMARK FOR ts AS ts
) WITH ('connector' = 'file', 'path' = 'data/clicks.csv', 'format' = 'csv');

CREATE TABLE first (what STRING)
WITH ('connector' = 'file', 'path' = 'first', 'format' = 'csv', 'csv.header' = 'false');
CREATE TABLE all_of_them (user_name STRING, cost INT)
WITH ('connector' = 'file', 'path' = 'all_of_them', 'format' = 'csv', 'csv.header' = 'false');
CREATE TABLE anns (views BIGINT)
WITH ('connector' = 'file', 'path' = 'anns', 'format' = 'csv', 'csv.header' = 'false');

BEGIN STATEMENT SET;
INSERT INTO first SELECT 'a record' FROM clicks LIMIT 2;
INSERT INTO all_of_them SELECT user_name, cost FROM clicks;
INSERT INTO anns SELECT COUNT(*) FROM clicks WHERE user_name = 'ann' AND kind = 'view';
END;
