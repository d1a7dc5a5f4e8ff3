-- answer: by hand. Records of one table after those of the other, in the order of the files; of a table on both
-- sides, record by record. So LIMIT takes the same rows however files are cut.
-- exchange: refused
CREATE TABLE clicks (
    ts TIMESTAMP(3), user_name STRING, kind STRING, cost INT
) WITH ('connector' = 'file', 'path' = 'data/clicks.csv', 'format' = 'csv');
CREATE TABLE events (
    ts TIMESTAMP(3), v BIGINT
) WITH ('connector' = 'file', 'path' = 'data/late.csv', 'format' = 'csv');

SELECT CHAR_LENGTH(user_name) AS v FROM clicks WHERE cost < 3 UNION ALL SELECT v FROM events;

SELECT kind, cost FROM clicks WHERE kind = 'view'
UNION ALL SELECT user_name, -cost FROM clicks WHERE user_name = 'ann' LIMIT 5;
