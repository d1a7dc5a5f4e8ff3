-- answer: by hand. On 4 November 2018, clocks in São Paulo went from midnight to 1:00, which is 3:00 in UTC. An instant and the
-- local time that it is cast to are compared alike as values and in conditions, also where both are event times; midnight,
-- which no clock shows, is the instant of 1:00. An instant is ordered by though it is shown as a local time.
-- exchange: refused
SET 'time_zone' = 'America/Sao_Paulo';
CREATE TABLE a (ts TIMESTAMP_LTZ(3), k STRING, WATERMARK FOR ts AS ts) WITH ('connector' = 'file', 'format' = 'csv', 'path' = 'data/instants.csv');
CREATE TABLE b (ts TIMESTAMP(3), d DATE, k STRING, WATERMARK FOR ts AS ts) WITH ('connector' = 'file', 'format' = 'csv', 'path' = 'data/local_times.csv');
SELECT a.k, b.k AS bk, a.ts = b.ts AS same FROM a JOIN b ON CAST(a.ts AS TIMESTAMP(3)) = b.ts;
SELECT a.k, b.k AS bk FROM a JOIN b ON a.ts = b.ts;
SELECT a.k, b.k AS bk FROM a LEFT JOIN b ON CAST(a.ts AS TIMESTAMP(3)) BETWEEN b.ts - INTERVAL '1' MINUTE AND b.ts ORDER BY a.k;
SELECT a.k, b.k AS bk, a.ts = b.d AS same FROM a JOIN b ON a.ts = b.d;
SELECT k AS in_instants FROM b WHERE d IN (SELECT ts FROM a);
SELECT k AS in_dates FROM a WHERE ts IN (SELECT d FROM b);
SELECT k, ts FROM a ORDER BY ts DESC LIMIT 2;
SELECT k, ts FROM a WHERE k = 'x' UNION ALL SELECT k, ts FROM a ORDER BY ts;
SELECT k, DATE_FORMAT(ts, 'yyyy-MM-dd HH:mm') AS f FROM a;
SELECT window_end, ts, k FROM TABLE(TUMBLE(TABLE a, DESCRIPTOR(ts), INTERVAL '1' DAY)) ORDER BY window_end, ts;
