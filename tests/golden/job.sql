-- Every kind of state, small: aggregates and sketches in windows that tumble and hop, sessions, a
-- ranking, joins, and the first rows of all.
CREATE TABLE a (k VARCHAR, v BIGINT, x DOUBLE, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)
WITH ('connector' = 'file', 'path' = 'a.csv', 'format' = 'csv', 'follow' = 'true');
CREATE TABLE b (k VARCHAR, w BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)
WITH ('connector' = 'file', 'path' = 'b.csv', 'format' = 'csv', 'follow' = 'true');

CREATE TABLE tumbling (s TIMESTAMP(3), k VARCHAR, n BIGINT, v BIGINT, mean DOUBLE, least DOUBLE, most VARCHAR, various BIGINT, about BIGINT, middle DOUBLE, all_v VARCHAR)
WITH ('connector' = 'file', 'path' = 'tumbling', 'format' = 'csv');
CREATE TABLE hopping (s TIMESTAMP(3), e TIMESTAMP(3), n BIGINT, x DOUBLE)
WITH ('connector' = 'file', 'path' = 'hopping', 'format' = 'csv');
CREATE TABLE sessions (s TIMESTAMP(3), e TIMESTAMP(3), k VARCHAR, n BIGINT)
WITH ('connector' = 'file', 'path' = 'sessions', 'format' = 'csv');
CREATE TABLE ranked (s TIMESTAMP(3), k VARCHAR, v BIGINT, place BIGINT)
WITH ('connector' = 'file', 'path' = 'ranked', 'format' = 'csv');
CREATE TABLE joined (k VARCHAR, v BIGINT, w BIGINT)
WITH ('connector' = 'file', 'path' = 'joined', 'format' = 'csv');
CREATE TABLE firsts (k VARCHAR, v BIGINT)
WITH ('connector' = 'file', 'path' = 'firsts', 'format' = 'csv');

BEGIN STATEMENT SET;
INSERT INTO tumbling SELECT window_start, k, COUNT(*), SUM(v), AVG(x), MIN(x), MAX(k || '!'), COUNT(DISTINCT v), APPROX_COUNT_DISTINCT(v), APPROX_PERCENTILE(x, 0.5), LISTAGG(CAST(v AS VARCHAR))
FROM TABLE(TUMBLE(TABLE a, DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY window_start, window_end, k;
INSERT INTO hopping SELECT window_start, window_end, COUNT(*), SUM(x)
FROM TABLE(HOP(TABLE a, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '20' SECOND)) GROUP BY window_start, window_end;
INSERT INTO sessions SELECT window_start, window_end, k, COUNT(*)
FROM TABLE(SESSION(TABLE a PARTITION BY k, DESCRIPTOR(ts), INTERVAL '3' SECOND)) GROUP BY window_start, window_end, k;
INSERT INTO ranked SELECT window_start, k, v, place FROM (
    SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY v DESC) AS place
    FROM TABLE(TUMBLE(TABLE a, DESCRIPTOR(ts), INTERVAL '10' SECOND))) WHERE place <= 2;
INSERT INTO joined SELECT a.k, a.v, b.w FROM a LEFT JOIN b
ON a.k = b.k AND b.ts BETWEEN a.ts - INTERVAL '2' SECOND AND a.ts + INTERVAL '6' SECOND;
INSERT INTO firsts SELECT k, v FROM a LIMIT 60;
END;
