-- answer: by hand. Gaps of 10 s, a watermark 10 s behind. The sessions of bids (B) and sellers (S) together:
--   a  S 0, B 10, B 20: each a gap after the one before, [0, 30); B 31 is 11 s later, [31, 41)
--   b  S 0, B 18, and between them B 9, which comes last: [0, 28)
--   -  S 5, B 6: NULL is a key of sessions, but equals nothing
--   c  S 40, S 41, B 42, B 45: [40, 55), four pairs
--   d, e, f  S 50 and B 59, 60, 61: a second less than a gap, a gap, a second more: [50, 69), [50, 70), and
--            [50, 60) with [61, 71)
--   g  S 70, B 70: [70, 80)     h  S 71, S 75, B 75: [71, 85)
-- The last record, B 12 of a, is late, once in each of the three queries: the watermark is 65 s.
-- counters: late_records=3
CREATE TABLE events (
    ts TIMESTAMP(3), kind STRING, k STRING, id STRING, WATERMARK FOR ts AS ts - INTERVAL '10' SECOND
) WITH ('connector' = 'file', 'path' = 'data/bids_and_sellers.csv', 'format' = 'csv', 'csv.null-literal' = '-');
CREATE VIEW s AS
SELECT * FROM TABLE(SESSION(TABLE events PARTITION BY k, DESCRIPTOR(ts), INTERVAL '10' SECOND));

-- Bids with the sellers of their session: the records of SESSION on both sides.
SELECT b.window_start, b.window_end, b.k, b.id AS bid, s.id AS seller
FROM (SELECT * FROM s WHERE kind = 'B') AS b JOIN (SELECT * FROM s WHERE kind = 'S') AS s
ON b.k = s.k AND b.window_start = s.window_start AND b.window_end = s.window_end;

-- Conditions of pairs, in ON and in WHERE, and columns computed of them.
SELECT b.window_end, b.k || '/' || s.k AS ks, b.id AS bid, s.id AS seller, TIMESTAMPDIFF(SECOND, s.ts, b.ts) AS apart
FROM s AS b JOIN s AS s
ON b.k = s.k AND b.window_start = s.window_start AND b.window_end = s.window_end AND b.ts > s.ts
WHERE b.kind = 'B' AND s.kind = 'S' AND b.id || s.id <> 'b7s4';

-- How often, without a column of the records.
SELECT b.window_start FROM s AS b JOIN s AS s ON b.k = s.k AND b.window_end = s.window_end
WHERE b.kind = 'B' AND s.kind = 'S' AND b.k IN ('c', 'd');
