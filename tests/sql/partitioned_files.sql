-- answer: by hand, from the groups of null_keys: 1 and NULL; 1 and 4, 2 and 34; 1 and 1; 1 and 8; 2 and 16. NULL and
-- the empty string have one directory. Files are rolled after each row.
-- counters: records=8
-- outputs: out/size=0/name=__HIVE_DEFAULT_PARTITION__, out/size=1/name=__HIVE_DEFAULT_PARTITION__, out/size=1/name=a, out/size=__HIVE_DEFAULT_PARTITION__/name=__HIVE_DEFAULT_PARTITION__, out/size=__HIVE_DEFAULT_PARTITION__/name=a
CREATE TABLE events (
    ts TIMESTAMP(3),
    name STRING,
    size INT,
    v BIGINT,
    WATERMARK FOR ts AS ts
) WITH ('connector' = 'file', 'path' = 'data/null_keys.csv', 'format' = 'csv');

CREATE TABLE totals (name STRING, n BIGINT, size INT, total BIGINT) PARTITIONED BY (size, name)
WITH ('connector' = 'file', 'path' = 'out', 'format' = 'csv', 'csv.header' = 'false', 'sink.rolling-policy.rows' = '1');

INSERT INTO totals
SELECT name, COUNT(*), size, SUM(v)
FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '10' SECOND))
GROUP BY window_start, window_end, name, size;
