-- answer: by hand. Functions that a script declares: in SELECT, WHERE, GROUP BY, HAVING and views, of other functions, and
-- with arguments that are called like another function's parameters.
CREATE TABLE pairs (id INT, a TIMESTAMP(3), b TIMESTAMP(6), d DATE)
WITH ('connector' = 'file', 'path' = 'data/time_pairs.csv', 'format' = 'csv');

CREATE FUNCTION half (n BIGINT) RETURNS BIGINT RETURN n / 2;
CREATE FUNCTION apart (n DOUBLE, m DOUBLE) RETURNS DOUBLE RETURN CASE WHEN n > m THEN n - m ELSE m - n END;
CREATE FUNCTION fourth (m BIGINT) RETURNS BIGINT RETURN HALF(half(m));
CREATE FUNCTION count_char (s STRING, c STRING) RETURNS BIGINT RETURN CHAR_LENGTH(s) - CHAR_LENGTH(REPLACE(s, c, ''));
CREATE FUNCTION answer () RETURNS INT RETURN 42;
CREATE FUNCTION IF NOT EXISTS answer () RETURNS INT RETURN 43;
CREATE OR REPLACE FUNCTION half (n BIGINT) RETURNS BIGINT RETURN n / 2 + 0;
CREATE FUNCTION gone () RETURNS INT RETURN 1;
DROP FUNCTION gone;
DROP FUNCTION IF EXISTS gone;

CREATE VIEW few AS SELECT id, half(id) AS h, apart(id, 3) AS away FROM pairs WHERE id < 5;

SELECT id, h, away, fourth(id * 10) AS q, apart(half(id), answer()), count_char('b' || CAST(id AS STRING) || 'bb', 'b') AS bs,
       count_char(NULL, 'x') AS nothing
FROM few;
SELECT half(id), COUNT(*) AS n, MAX(apart(1, id)) AS most FROM few WHERE half(id) < 2 GROUP BY half(id) HAVING half(MAX(id)) < 2;
