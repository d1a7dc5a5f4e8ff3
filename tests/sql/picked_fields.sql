-- answer: by hand. CASE between fields of rows: also where the row or the condition is NULL, without ELSE, of texts, with
-- constants, where several conditions hold, and as the event time of windows.
CREATE TABLE events (
    id INT, kind INT,
    person ROW<at TIMESTAMP(3), name STRING, rank BIGINT>,
    auction ROW<at TIMESTAMP(3), name STRING, rank BIGINT>,
    bid ROW<at TIMESTAMP(3), name STRING, rank BIGINT>,
    ts AS CASE WHEN kind = 0 THEN person.at WHEN kind = 1 THEN auction.at ELSE bid.at END,
    WATERMARK FOR ts AS ts - INTERVAL '2' MINUTE
) WITH ('connector' = 'file', 'path' = 'data/kinds.ndjson', 'format' = 'ndjson');

SELECT id, ts, CASE WHEN kind = 0 THEN person.name WHEN kind = 1 THEN auction.name END AS name,
       CASE WHEN kind >= 1 THEN auction.rank WHEN kind <= 1 THEN person.rank ELSE bid.rank END AS rank,
       CASE WHEN kind IS NULL OR bid.rank > 4 THEN bid.name WHEN auction.rank = 3 THEN 'three' ELSE 'none' END AS word
FROM events;
SELECT window_start, COUNT(*) AS n, SUM(CASE WHEN kind = 0 THEN person.rank ELSE -1 END) AS ranks
FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) GROUP BY window_start, window_end;
