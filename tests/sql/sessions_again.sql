-- answer: by hand. Seconds of the records, their users and costs (one is NULL):
--   0 ann 1, 1 bob 2, 2 ann 3, 3 ann -, 4 bob 5, 10 cid 6, 11 bob 7, 12 cid 8, 20 ann 9
-- Sessions with gaps of 5 s, of each user: ann [0, 8) 3 records, 4; bob [1, 9) 2, 7; bob [11, 16) 1, 7;
-- cid [10, 17) 2, 14; ann [20, 25) 1, 9. With a second source, tenfold, of all but cid, two of each.
-- exchange: refused
CREATE TABLE clicks (
    ts TIMESTAMP(3), user_name STRING, kind STRING, cost INT, WATERMARK FOR ts AS ts
) WITH ('connector' = 'file', 'path' = 'data/clicks.csv', 'format' = 'csv');

CREATE VIEW sources AS
    SELECT ts, user_name, 'x' AS source, cost FROM clicks
    UNION ALL SELECT ts, user_name, 'y', cost * 10 FROM clicks WHERE user_name <> 'cid';

CREATE VIEW sittings AS
    SELECT window_start AS s, window_end AS e, window_time AS t, user_name, source,
           COUNT(*) AS n, SUM(cost) AS total
    FROM TABLE(SESSION(
        TABLE sources PARTITION BY (user_name, source), DESCRIPTOR(ts), INTERVAL '5' SECOND))
    GROUP BY window_start, window_end, window_time, user_name, source;

-- Sessions with the same bounds together.
SELECT s, e, user_name, COUNT(*) AS sessions, SUM(n) AS n, SUM(total) AS total
FROM sittings GROUP BY s, e, user_name;

-- And these by 8 s: they end at 8; at 9 and 16; at 17; and at 25.
CREATE VIEW both AS SELECT s, e, t, SUM(n) AS n FROM sittings GROUP BY s, e, t;
SELECT window_start, COUNT(*) AS ends, SUM(n) AS n
FROM TABLE(TUMBLE(TABLE both, DESCRIPTOR(t), INTERVAL '8' SECOND))
GROUP BY window_start, window_end;

-- How many there are, of which nothing else is taken: their ends are at 8; at 9 and 16; at 17; and at 25.
SELECT window_start, COUNT(*) AS sessions
FROM TABLE(TUMBLE(TABLE sittings, DESCRIPTOR(t), INTERVAL '8' SECOND))
GROUP BY window_start, window_end;

-- Sessions of their ends: 7.999 and 8.999; 15.999 and 16.999; 24.999.
SELECT window_start, window_end, COUNT(*) AS ends, SUM(n) AS n
FROM TABLE(SESSION(TABLE both, DESCRIPTOR(t), INTERVAL '5' SECOND))
GROUP BY window_start, window_end;
