-- answer: by hand. As in Calcite, several values behind one WHEN have one result. A value is compared once, the first
-- WHEN that has it counts, NULL equals nothing, and only the result that is taken is evaluated: 10 / 0 is not.
SELECT x,
       CASE x WHEN 1, 2 THEN 'few' WHEN 2, 3, x + 0 THEN 'more' WHEN 5 THEN 'never' ELSE 'none' END AS size,
       CASE x WHEN 1, 2 THEN 10 / x WHEN 7, NULL THEN -1 END AS part,
       CASE UPPER(s) WHEN 'A', 'B' THEN CASE x WHEN 1, 4 THEN 'outer' ELSE s END WHEN 'C' THEN 'c' END AS inner_one
FROM (VALUES (1, 'a'), (2, 'B'), (3, 'c'), (4, 'b'), (0, 'e'), (CAST(NULL AS INT), 'd')) AS t (x, s);
SELECT CASE x WHEN 1, 2 THEN 'few' ELSE 'more' END AS size, COUNT(*) AS n, SUM(x) FILTER (WHERE CASE x WHEN 1, 9 THEN TRUE END) AS ones
FROM (VALUES (1), (2), (3), (1)) AS t (x) GROUP BY CASE x WHEN 1, 2 THEN 'few' ELSE 'more' END;
