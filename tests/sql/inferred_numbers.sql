-- answer: by hand. A DOUBLE would hold 9007199254740992 in place of the first number.
SELECT CAST(id AS STRING) AS id FROM 'data/beyond_doubles.csv' ORDER BY id;

SELECT CAST(id AS STRING) AS id, id + 1 AS more FROM 'data/beyond_doubles.ndjson' ORDER BY id;
