-- answer: by hand, with Flink's rules. JSON_QUERY: scalars must be wrapped to be given; what is not there is empty when
-- lax and an error when strict, the default; null is empty. Blanks between the parts go. JSON_OBJECT keeps NULLs,
-- JSON_ARRAY leaves them out, unless the clause says otherwise; what they make goes into others as it is.
CREATE VIEW texts AS SELECT * FROM (VALUES
    (1, '{ "a" : { "b" : [ 1, 2.50, "x y" ] }, "n" : null, "s" : "t" }'), (2, '[1, {"c": 2}]'), (3, 'none'), (4, NULL)
) AS t (id, j);

SELECT id, JSON_QUERY(j, '$.a') AS `a`, JSON_QUERY(j, 'lax $.a.b' WITHOUT ARRAY WRAPPER) AS `b`,
       JSON_QUERY(j, '$[1]') AS `one`, JSON_QUERY(j, '$' WITH CONDITIONAL ARRAY WRAPPER) AS `whole`,
       JSON_QUERY(j, '$' WITH UNCONDITIONAL WRAPPER EMPTY OBJECT ON ERROR) AS `wrapped`
FROM texts;
SELECT id, JSON_QUERY(j, '$.s' RETURNING STRING) AS `scalar`,
       JSON_QUERY(j, '$.s' WITH CONDITIONAL ARRAY WRAPPER) AS `in_array`,
       JSON_QUERY(j, 'lax $.s' EMPTY ARRAY ON EMPTY EMPTY OBJECT ON ERROR) AS `lax`,
       JSON_QUERY(j, 'strict $.x' EMPTY ARRAY ON EMPTY EMPTY OBJECT ON ERROR) AS `strict`,
       JSON_QUERY(j, '$.n' EMPTY ARRAY ON EMPTY) AS `nul`
FROM texts;

CREATE VIEW facts AS SELECT * FROM (VALUES
    (1, 'it''s "x"', 1.50, 0.25E0, TRUE, TIMESTAMP '2024-05-01 12:00:03.5', ARRAY[1, NULL]),
    (2, CAST(NULL AS STRING), NULL, NULL, NULL, NULL, NULL)
) AS t (id, s, m, d, b, ts, list);

SELECT JSON_OBJECT('id' VALUE id, KEY 's' VALUE s, 'm' VALUE m, 'd' : d) AS o,
       JSON_OBJECT(KEY 's' VALUE s ABSENT ON NULL) AS absent,
       JSON_ARRAY(id, s, b) AS a, JSON_ARRAY(id, s, b NULL ON NULL) AS kept, JSON_ARRAY() AS nothing
FROM facts;
SELECT JSON_OBJECT('in' VALUE JSON_OBJECT('a' VALUE JSON_ARRAY(id, JSON_ARRAY(s))), 'text' VALUE '{}') AS nested,
       JSON_ARRAY(list, MAP['k', m], ROW(id, b), DATE '2024-05-01') AS parts, JSON_STRING(ts) AS ts,
       JSON_STRING(list) AS list, JSON_QUOTE(s) AS quoted, JSON_UNQUOTE(JSON_QUOTE(s)) AS back, JSON_UNQUOTE('[1]') AS own
FROM facts;
