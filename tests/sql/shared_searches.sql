-- answer: by hand. A condition and the columns of the passing rows search texts in the same way; not all of these rows were searched by the condition.
CREATE TABLE texts (id INT, s STRING, n BIGINT) WITH ('connector' = 'file', 'path' = 'data/text_edges.csv', 'format' = 'csv');

SELECT id, CASE WHEN n > 0 THEN 'more' ELSE REGEXP_EXTRACT(s, 'h(e)(l*)', 2) END AS part, REGEXP_EXTRACT(s, 'h(e)(l*)', 1) AS one
FROM texts WHERE n = 2 OR REGEXP_EXTRACT(s, 'h(e)(l*)', 2) IS NOT NULL;
-- Row 6 has no pattern, and is not searched.
SELECT id, REGEXP_EXTRACT(s, CASE WHEN id = 6 THEN '(' ELSE 'l(.)' END, 1) AS a
FROM texts WHERE id <> 6 AND REGEXP_EXTRACT(s, CASE WHEN id = 6 THEN '(' ELSE 'l(.)' END, 1) = 'l' AND id < 8;
