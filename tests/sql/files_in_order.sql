-- answer: by hand. Without an ORDER BY, how the rows of several files alternate depends on batch.rows.
CREATE TABLE logs (path STRING METADATA, at BIGINT METADATA FROM 'offset', page STRING, n BIGINT)
WITH ('connector' = 'file', 'format' = 'ndjson', 'path' = 'data/several/*.ndjson');

SELECT page, n FROM logs ORDER BY path, at;

SELECT page, n FROM logs ORDER BY path, at LIMIT 2 OFFSET 4;
