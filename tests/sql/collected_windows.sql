-- answer: by hand. The offers of shop a are at 1, 2, 6, 11 and 12 s, those of shop b at 3, 4, 4 and 13 s.
--   Sessions with a gap of 2 s: a 1–2, 6 and 11–12; b 3–4 and 13. They come in the order of their ends.
CREATE TABLE offers (
    ts TIMESTAMP(3), shop STRING, item STRING, price INT, WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH ('connector' = 'file', 'path' = 'data/offers.csv', 'format' = 'csv', 'csv.null-literal' = '-');

-- Windows that overlap.
SELECT window_start, FIRST_VALUE(item) AS f, LAST_VALUE(item) AS l, LISTAGG(item) AS items,
       MIN_BY(item, price) AS m, ARRAY_AGG(price) AS prices
FROM TABLE(HOP(TABLE offers, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '10' SECOND))
GROUP BY window_start, window_end;

-- Windows that grow.
SELECT window_start, window_end, FIRST_VALUE(item) AS f, LAST_VALUE(item) AS l, LISTAGG(item) AS items,
       APPROX_COUNT_DISTINCT(price) AS different
FROM TABLE(CUMULATE(TABLE offers, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '10' SECOND))
GROUP BY window_start, window_end;

CREATE VIEW sessions AS
SELECT * FROM TABLE(SESSION(TABLE offers PARTITION BY shop, DESCRIPTOR(ts), INTERVAL '2' SECOND));

SELECT shop, window_start, window_end, FIRST_VALUE(item) AS f, LAST_VALUE(item) AS l, LISTAGG(item, '+') AS items
FROM sessions GROUP BY shop, window_start, window_end;
