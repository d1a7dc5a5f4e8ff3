-- answer: by hand, with Python (urllib.parse.quote_plus, format). What is no URL's value is NULL; NULL is made of nothing.
SELECT s, URL_ENCODE(s) AS encoded, URL_DECODE(URL_ENCODE(s)) AS decoded, URL_DECODE(s) AS raw, HEX(s) AS hex,
       CAST(UNHEX(HEX(s)) AS STRING) = s AS back, REGEXP_INSTR(s, '[b%]') AS place,
       REGEXP_SUBSTR(s, '[b%].') AS part, IS_ALPHA(s) AS alpha, IS_DIGIT(s) AS digit, IS_DECIMAL(s) AS number
FROM (VALUES ('a b'), ('x=1&y=é'), ('50%'), ('%4a+%F'), ('-1.5e3'), ('7'), ('Ж'), (''), (NULL)) AS t (s);
SELECT n, BIN(n) AS bin, HEX(n) AS hex, IS_DIGIT(n) AS digit, IS_DECIMAL(n) AS number, E() AS e,
       CAST(UNHEX('c396') AS STRING) AS letter, UNHEX('xy') IS NULL AS none
FROM (VALUES (5), (0), (-1), (NULL)) AS t (n);
