-- answer: by hand. Visits (second, who, n): 1 a 1, 2 b 2, 3 a 3, 3 b 4, 10 c 5.
-- Sessions with gaps of 2 s, each a millisecond after its time: a [1, 5), b [2, 5), 2 visits each; c [10, 12), 1 visit.
-- exchange: refused
CREATE TABLE visits (
    ts TIMESTAMP(3), who STRING, n INT, WATERMARK FOR ts AS ts
) WITH ('connector' = 'file', 'path' = 'data/ends.csv', 'format' = 'csv');
CREATE TABLE states (
    ts TIMESTAMP(3), who STRING, n INT, WATERMARK FOR ts AS ts, PRIMARY KEY (who) NOT ENFORCED
) WITH ('connector' = 'file', 'path' = 'data/ends.csv', 'format' = 'csv');

CREATE VIEW stays AS
    SELECT window_start AS s, window_end AS e, window_time AS t, who, COUNT(*) AS n
    FROM TABLE(SESSION(TABLE visits PARTITION BY who, DESCRIPTOR(ts), INTERVAL '2' SECOND))
    GROUP BY window_start, window_end, window_time, who;

-- Sessions that are over up to three seconds after a visit.
CREATE VIEW ended AS
    SELECT v.n, s.who, s.n AS visits, s.t FROM visits v JOIN stays s ON s.t BETWEEN v.ts AND v.ts + INTERVAL '3' SECOND;
SELECT n, who, visits FROM ended;
SELECT window_start, COUNT(*) AS c FROM TABLE(TUMBLE(TABLE ended, DESCRIPTOR(t), INTERVAL '10' SECOND))
GROUP BY window_start, window_end;

-- The last two seconds of a session are those after its last visit.
SELECT v.n, v.who, s.e FROM visits v LEFT JOIN stays s
ON s.who = v.who AND v.ts BETWEEN s.e - INTERVAL '2' SECOND AND s.e;

-- 
SELECT v.n, v.who FROM visits v
WHERE EXISTS (SELECT 1 FROM stays s WHERE s.who <> v.who AND s.t BETWEEN v.ts AND v.ts + INTERVAL '2' SECOND);

-- Sessions that end together.
SELECT g.e, g.people, v.n
FROM (SELECT e, t, COUNT(*) AS people FROM stays GROUP BY e, t) g
JOIN visits v ON v.ts BETWEEN g.t - INTERVAL '2' SECOND AND g.t;

-- What was known when a session was over.
SELECT s.who, s.n, r.n AS last FROM stays s JOIN states FOR SYSTEM_TIME AS OF s.t AS r ON r.who = s.who;

-- The time of a FULL JOIN's session is that of the side that is there: b of both, a of one, c of the other.
CREATE VIEW sides AS SELECT COALESCE(r.t, l.t) AS t, l.who AS l, r.who AS r
FROM (SELECT * FROM stays WHERE who <> 'a') l FULL JOIN (SELECT * FROM stays WHERE who <> 'c') r
ON l.s = r.s AND l.e = r.e AND l.who = r.who;
SELECT window_end, COUNT(*) AS c, COUNT(l) AS l, COUNT(r) AS r
FROM TABLE(TUMBLE(TABLE sides, DESCRIPTOR(t), INTERVAL '10' SECOND)) GROUP BY window_start, window_end;
