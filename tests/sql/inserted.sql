-- answer: by hand. AVG of 1, 2, 4 is 2.33…, of -1, -2 is -1.5: into a column of integers goes what is before the point.
-- outputs: objects, lines
CREATE TABLE shown (k STRING, mean BIGINT) WITH ('connector' = 'print');
CREATE TABLE numbers (k STRING, x INT) WITH ('connector.type' = 'filesystem', 'connector.path' = 'data/means.csv', 'format.type' = 'csv');
-- Nobody uses it, so its connector need not be there.
CREATE TABLE topic (k STRING, at TIMESTAMP(3) METADATA FROM 'timestamp') WITH (
    'connector' = 'kafka', 'topic' = 'k', 'properties.bootstrap.servers' = '${BOOTSTRAP_SERVERS}', 'format' = 'json'
);

-- Nor need its format.
CREATE TABLE records (k STRING) WITH ('connector' = 'file', 'path' = 'records', 'format' = 'avro');

INSERT INTO shown SELECT k, AVG(x) FROM numbers GROUP BY k;
INSERT INTO shown SELECT k, m FROM (SELECT k, AVG(x) AS m FROM numbers GROUP BY k HAVING COUNT(*) > 2) ORDER BY k;

-- Flink's name for lines of JSON, and CSV as Flink writes it.
CREATE TABLE objects (k STRING, mean BIGINT) WITH ('connector' = 'file', 'path' = 'objects', 'format' = 'json');
CREATE TABLE lines (k STRING, mean BIGINT) WITH (
    'connector' = 'file', 'path' = 'lines', 'format' = 'csv', 'csv.header' = 'false'
);
INSERT INTO objects SELECT k, AVG(x) FROM numbers GROUP BY k;
INSERT INTO lines SELECT k, AVG(x) FROM numbers GROUP BY k;
