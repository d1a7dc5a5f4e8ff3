-- answer: by hand: Python's hashlib, of the texts' UTF-8
CREATE TABLE texts (id INT, s STRING, n BIGINT) WITH ('connector' = 'file', 'path' = 'data/text_edges.csv', 'format' = 'csv');

SELECT id, MD5(s) AS md5, SHA1(s) AS sha1, SHA224(s) AS sha224, SHA256(s) AS sha256 FROM texts WHERE id IN (1, 6, 7, 9, 10);
SELECT id, SHA384(s) AS sha384, SHA512(s) AS sha512 FROM texts WHERE id IN (1, 6, 7, 9, 10);
SELECT SHA2('abc', 224) = SHA224('abc') AS a, SHA2('abc', 256) = SHA256('abc') AS b, SHA2('abc', 384) = SHA384('abc') AS c,
       SHA2('abc', 512) = SHA512('abc') AS d, SHA2(CAST(NULL AS STRING), 256) AS e, SHA2('abc', CAST(NULL AS INT)) AS f, MD5(NULL) AS g,
       MD5('a' || CAST(id AS STRING)) AS h
FROM texts WHERE id = 1;
SELECT MD5(s) AS k, COUNT(*) AS n FROM texts GROUP BY MD5(s) HAVING COUNT(*) > 1;
