-- answer: by hand. Several statements, comments, SET in both spellings, a table dropped and made anew.
CREATE TABLE clicks (
    ts TIMESTAMP(3), user_name STRING, kind STRING, cost INT, WATERMARK FOR ts AS ts
) WITH ('connector' = 'file', 'path' = 'data/clicks.csv', 'format' = 'csv');

/* a comment; with a semicolon */
SET 'epoch.max_idle_ms' = '50';
SET epoch.max_idle_ms = 60;
SELECT COUNT(*) AS n FROM clicks; -- a trailing comment; another semicolon
DROP TABLE clicks;
CREATE TABLE clicks (
    ts TIMESTAMP(3), v BIGINT, WATERMARK FOR ts AS ts
) WITH ('connector' = 'file', 'path' = 'data/edges.csv', 'format' = 'csv');
SELECT SUM(v) AS total FROM clicks;
SELECT 'a;b' AS text, v FROM clicks WHERE v = 3;;
