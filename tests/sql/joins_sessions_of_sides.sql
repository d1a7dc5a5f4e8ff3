-- answer: by hand, from joins_sessions.sql, whose sessions are those of bids and sellers together.
-- exchange: refused
CREATE TABLE events (
    ts TIMESTAMP(3), kind STRING, k STRING, id STRING, WATERMARK FOR ts AS ts - INTERVAL '10' SECOND
) WITH ('connector' = 'file', 'path' = 'data/bids_and_sellers.csv', 'format' = 'csv', 'csv.null-literal' = '-');
CREATE VIEW bids AS SELECT ts, k, id FROM events WHERE kind = 'B';
CREATE VIEW sellers AS SELECT ts, k, id FROM events WHERE kind = 'S';
CREATE VIEW b AS SELECT * FROM TABLE(SESSION(TABLE bids PARTITION BY k, DESCRIPTOR(ts), INTERVAL '10' SECOND));
CREATE VIEW s AS SELECT * FROM TABLE(SESSION(TABLE sellers PARTITION BY k, DESCRIPTOR(ts), INTERVAL '10' SECOND));
CREATE VIEW both_kinds AS SELECT 'B' AS kind, ts, k, id FROM bids UNION ALL SELECT 'S', ts, k, id FROM sellers;
CREATE VIEW u AS
SELECT * FROM TABLE(SESSION(TABLE both_kinds PARTITION BY k, DESCRIPTOR(ts), INTERVAL '10' SECOND));

-- Each side has sessions of its own, which must begin and end together: those of g alone do. Those of h end
-- together, at 85, and begin at 75 and at 71.
SELECT b.window_start, b.window_end, b.k, b.id AS bid, s.id AS seller
FROM b JOIN s ON b.k = s.k AND b.window_start = s.window_start AND b.window_end = s.window_end;

-- The end alone: those of h, too.
SELECT b.window_start, s.window_start AS other, b.k, b.id AS bid, s.id AS seller
FROM b JOIN s ON b.k = s.k AND b.window_end = s.window_end;

-- Sessions of the records of a UNION ALL: bids without a seller in theirs come next to NULL.
SELECT x.window_start, x.window_end, x.k, x.id AS bid, y.id AS seller
FROM (SELECT * FROM u WHERE kind = 'B') AS x LEFT JOIN (SELECT * FROM u WHERE kind = 'S') AS y
ON x.k = y.k AND x.window_start = y.window_start AND x.window_end = y.window_end
WHERE x.k IS NULL OR x.k IN ('a', 'b', 'f');

-- The same bids by NOT EXISTS.
SELECT window_start, k, id FROM u WHERE kind = 'B' AND NOT EXISTS (
    SELECT 1 FROM u AS y WHERE kind = 'S' AND y.k = u.k AND y.window_start = u.window_start AND y.window_end = u.window_end
);

-- Records of sessions with the result of a grouping by the same sessions.
SELECT u.window_end, u.k, id, n
FROM u JOIN (
    SELECT window_start, window_end, k, COUNT(*) AS n FROM u GROUP BY window_start, window_end, k
) AS g ON u.k = g.k AND u.window_start = g.window_start AND u.window_end = g.window_end
WHERE n > 2 AND kind = 'S';

-- A grouping of pairs.
SELECT x.window_start, x.window_end, x.k, COUNT(*) AS pairs
FROM u AS x JOIN u AS y ON x.k = y.k AND x.window_start = y.window_start AND x.window_end = y.window_end
WHERE x.kind = 'B' AND y.kind = 'S'
GROUP BY x.window_start, x.window_end, x.k;
