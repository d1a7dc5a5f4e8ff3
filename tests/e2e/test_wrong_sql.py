"""Wrong SQL of the kinds that people write: the message, the line and column, and the text underlined."""

import re

import harness
import pytest
from conftest import check_place, events

TUMBLE = "FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '10' SECOND))"
GROUP = "GROUP BY window_start, window_end"
FILE = "'connector' = 'file', 'path' = 'events.csv', 'format' = 'csv'"
TABLES = (events("k BIGINT, v BIGINT, name STRING")
          + "CREATE TABLE sink (k BIGINT, name STRING) WITH ('connector' = 'print');\n")


def window(size: str, time: str = "DESCRIPTOR(ts)", table: str = "TABLE events", name: str = "TUMBLE") -> str:
    return f"SELECT COUNT(*) AS n FROM TABLE({name}({table}, {time}, {size})) {GROUP}"


def table(columns: str, options: str = FILE) -> str:
    return f"CREATE TABLE t (ts TIMESTAMP(3), a BIGINT{columns}) WITH ({options}); SELECT a FROM t"


# The SQL, the text that is underlined, and what the message has to say.
WRONG = [
    # Misspelled or missing words.
    ("SELEC k FROM events", "SELEC", "did you mean SELECT?"),
    ("SELECT k FORM events", "FORM", "did you mean FROM?"),
    ("SELECT k FROM events WEHRE v = 1", "WEHRE", "did you mean WHERE?"),
    (f"SELECT k, COUNT(*) {TUMBLE} GRUOP BY k", "GRUOP", "did you mean GROUP?"),
    (f"SELECT k, COUNT(*) {TUMBLE} GROUP k", "GROUP", "expected BY after GROUP"),
    (f"SELECT k, COUNT(*) AS n {TUMBLE} {GROUP}, k HAVNG n > 1", "HAVNG", "did you mean HAVING?"),
    ("SELECT k FROM events LIMT 3", "LIMT", "did you mean LIMIT?"),
    ("SELECT k, FROM events", "FROM", "leave out the comma before it"),
    ("SELECT k v w FROM events", "w", "is a comma missing before it?"),
    ("SELECT k AS FROM events", "FROM", "expected a name after AS"),
    ("SELECT 1 + FROM events", "FROM", "expected a value"),
    ("SELECT (k FROM events", "FROM", "expected )"),
    ("SELECT k) FROM events", ")", "found )"),
    ("SELECT k FROM events WHERE k <> 1 && v = 2", "&&", "write AND"),
    ("SELECT 'abc FROM events", "'", "the string that opens here is never closed"),
    ('SELECT "abc FROM events', '"', "the name that opens here is never closed"),
    ("SELECT k FROM events; /* the end", "/*", "the comment that opens here is never closed"),
    ("SELECT k FROM events\nSELECT v FROM events", "SELECT", "statements are separated by ;"),
    ("SELECT " + "NOT " * 3_000 + "TRUE FROM events", "NOT", "nested too deeply"),
    ("EXPLAIN ANALYSE SELECT k FROM events", "ANALYSE", "did you mean ANALYZE?"),
    ("\\d events", "\\", "commands of the shell stand on a line of their own"),
    ("GRANT k", "GRANT", "CREATE FUNCTION"),
    ("DESCRIBE events.csv", "events.csv", "a file stands in single quotes: DESCRIBE 'events.csv'"),
    ("DESCRIBE `events.csv`", "`events.csv`", "a file stands in single quotes: DESCRIBE 'events.csv'"),
    ("DESCRIBE 'evnts.csv'", "'evnts.csv'", "events.csv"),
    # Functions that a script declares.
    ("CREATE FUNCTION f AS 'com.example.F'", "AS", "CREATE FUNCTION f (s STRING, c STRING) RETURNS BIGINT"),
    ("CREATE FUNCTION f (x INT) RETURNS INT RETURN y + 1", "y", "its parameters are: x"),
    ("CREATE FUNCTION f (x INT, x INT) RETURNS INT RETURN x", "x", "there are two parameters 'x'"),
    ("CREATE FUNCTION f (x INT) RETURNS INT RETURN SUM(x)", "SUM", "SUM is of several rows"),
    ("CREATE FUNCTION f (x INT) RETURNS INT RETURN uper(x)", "uper", "did you mean"),
    ("CREATE FUNCTION upper (x INT) RETURNS INT RETURN x", "upper", "use another name"),
    ("CREATE FUNCTION mod (x INT) RETURNS INT RETURN x", "mod", "use another name"),
    ("CREATE OR REPLACE FUNCTION Quarter (x INT) RETURNS INT RETURN x", "Quarter", "use another name"),
    ("CREATE FUNCTION f (x INT) RETURNS INT RETURN x; CREATE FUNCTION F () RETURNS INT RETURN 1", "F",
     "write CREATE OR REPLACE FUNCTION"),
    ("CREATE FUNCTION f (x INT) RETURNS INT RETURN f(x)", "f", "there is no function 'f'"),
    ("CREATE FUNCTION f (x INT) RETURNS INT RETURN x; SELECT f(k, v) FROM events", "f", "takes 1 arguments, not 2"),
    ("DROP FUNCTION f", "f", "no function 'f' is declared"),
    # Names.
    ("SELECT k FROM event", "event", "did you mean 'events'?"),
    ("SELECT kk FROM events", "kk", "did you mean 'k'?"),
    ("SELECT q FROM events", "q", "the columns are ts, k, v, name"),
    ("SELECT e.k FROM events", "e.k", "there is no table 'e' here"),
    ("SELECT e.* FROM events", "e", "there is no table 'e' here"),
    ("SELECT k FROM db.events", "db.events", "names a database"),
    ("SELECT DATE_DIFF(ts, ts) FROM events", "DATE_DIFF", "TIMESTAMPDIFF(DAY, a, b)"),
    ("SELECT DATE_ADD(ts, 1) FROM events", "DATE_ADD", "ts + INTERVAL '1' DAY"),
    ("SELECT LENGHT(name) FROM events", "LENGHT", "did you mean LENGTH?"),
    ("SELECT COUNT(*) AS n FROM events GROUP BY TUMBEL(ts, INTERVAL '1' SECOND)", "TUMBEL", "did you mean TUMBLE?"),
    ("SELECT TUMBLE_STRT(ts, INTERVAL '1' SECOND) AS s FROM events GROUP BY TUMBLE(ts, INTERVAL '1' SECOND)",
     "TUMBLE_STRT", "did you mean TUMBLE_START?"),
    ("SELECT x FROM events CROSS JOIN UNEST(name) AS u (x)", "UNEST", "did you mean UNNEST?"),
    ("SELECT k, ROW_NUMBR() OVER (ORDER BY v) AS rn FROM events", "ROW_NUMBR", "did you mean ROW_NUMBER?"),
    (f"SELECT LISTAG(name) AS x {TUMBLE} {GROUP}", "LISTAG", "did you mean LISTAGG?"),
    ("SELECT k AS x FROM events WHERE x = 1", "x", "WHERE does not know the aliases of SELECT: write k"),
    ('SELECT k FROM events WHERE name = "ann"', '"ann"', "single quotes: 'ann'"),
    ("SELECT window_start, COUNT(*) FROM events GROUP BY window_start", "window_start", "comes from a window"),
    ("SELECT k AS a, v AS a FROM events", "a", "same name"),
    ("SELECT COUNT(*) AS n FROM TABLE(SESSION(TABLE events PARTITION BY k, DESCRIPTOR(ts), INTERVAL '5' SECOND)) "
     + GROUP, "window_start, window_end", "sessions are those of one k, and GROUP BY is without it"),
    ("SELECT COUNT(*) AS n FROM TABLE(SESSION(TABLE events PARTITION BY k, DESCRIPTOR(ts), INTERVAL '5' SECOND)) "
     + GROUP + ", ROLLUP (k)", "window_start, window_end, ROLLUP (k", "put k before the sets"),
    ("SELECT COUNT(*) AS n FROM TABLE(TUMBLE(TABLE events PARTITION BY k, DESCRIPTOR(ts), INTERVAL '5' SECOND)) "
     + GROUP, "k", "TUMBLE has no PARTITION BY"),
    ("SELECT k", "k", "add FROM and a table's name"),
    ("SELECT (SELECT MAX(k) FROM events)", "SELECT MAX(k) FROM events", "join its row"),
    ("WITH RECURSIVE r AS (SELECT k FROM events) SELECT k FROM r", "WITH", "leave RECURSIVE out"),
    ("VALUES (1), (AVG(1))", "AVG", "AVG is of records, and VALUES has none"),
    ("SELECT * FROM (VALUES (ROW_NUMBER() OVER (ORDER BY 1))) AS t (x)", "ROW_NUMBER", "write SELECT ROW_NUMBER(…) FROM"),
    ("SELECT a.k FROM events AS a JOIN events AS b CROSS JOIN events AS c ON a.k = b.k", "ON",
     "write brackets: a JOIN (b CROSS JOIN c) ON …"),
    ("SELECT *", "*", "add FROM and a table's name"),
    ("SELECT JSON_LENGTH(name, '$.a') FROM events", "JSON_LENGTH", "JSON_VALUE(x, '$.a'), JSON_EXISTS(x, '$.a')"),
    ("SELECT JSON_VALUE(name, '$.a[*]') FROM events", "'$.a[*]'", "write for example '$.a.b[0]'"),
    ("SELECT JSON_VALUE(name, name) FROM events", "name", "write for example JSON_VALUE(x, '$.a.b[0]')"),
    ("SELECT JSON_VALUE(name, '$.a' RETURNING DATE) FROM events", "JSON_VALUE", "CAST(JSON_VALUE(x, '$.a') AS DATE)"),
    ("SELECT JSON_VALUE(name, '$.a' RETURNING INT DEFAULT 'x' ON ERROR) FROM events", "JSON_VALUE", "of type INT"),
    ("SELECT JSON_EXISTS(name, 'a') FROM events", "'a'", "write for example '$.a.b[0]'"),
    ("SELECT CRC32(name) FROM events", "CRC32", "write MD5(x) or SHA256(x)"),
    ("SELECT CEIL(ts TO EPOCH) FROM events", "ts", "the units are YEAR, QUARTER, MONTH, WEEK, DAY"),
    ("SELECT FLOOR(ts TO DECADE) FROM events", "ts", "the units are YEAR, QUARTER, MONTH, WEEK, DAY"),
    # Calls that are rewritten say how they are written.
    ("SELECT LOCATE('a') FROM events", "LOCATE", "write LOCATE(part, text) or LOCATE(part, text, from)"),
    ("SELECT HOUR() FROM events", "HOUR", "write HOUR(time)"),
    ("SELECT SIGN(k, 1) FROM events", "SIGN", "write SIGN(number)"),
    ("SELECT IF(k > 1, 1) FROM events", "IF", "write IF(condition, then, otherwise)"),
    ("SELECT TO_TIMESTAMP_LTZ(k > 1) FROM events", "TO_TIMESTAMP_LTZ(k > 1)", "there is no TO_TIMESTAMP_LTZ of BOOLEAN"),
    ("SELECT TO_TIMESTAMP_LTZ(k, 0, 1) FROM events", "TO_TIMESTAMP_LTZ(k, 0, 1)",
     "it takes TO_TIMESTAMP_LTZ(milliseconds), TO_TIMESTAMP_LTZ(seconds, 0) or a text"),
    ("SELECT TO_TIMESTAMP_LTZ(k, 6) FROM events", "6", "0 for seconds since 1970"),
    ("SELECT INSTR(name, 'a', 'b') FROM events", "INSTR(name, 'a', 'b')", "INSTR(STRING, STRING, BIGINT, BIGINT)"),
    ("SELECT CEIL(name) FROM events", "CEIL(name)", "it takes CEIL(number) or CEIL(time TO unit)"),
    ("SELECT INTERVAL '1' MONTH TO DAY FROM events", "'1'", "write YEAR TO MONTH"),
    ("SELECT SHA2(name, 100) FROM events", "100", "write 224, 256, 384 or 512"),
    ("SELECT STR_TO_MAP(name, '(') FROM events", "STR_TO_MAP(name, '(')", "makes it an ordinary character"),
    ("SELECT CONVERT_TZ(name, 'UTC', '+18:30') FROM events", "'+18:30'", "'Europe/Zurich', 'UTC' or '+02:00'"),
    # Times as files have them.
    ("SELECT CAST('12:00:60' AS TIME) FROM events", "CAST('12:00:60' AS TIME)", "cannot cast '12:00:60' to TIME(0)"),
    ("SELECT CAST('120000' AS TIME(3)) FROM events", "CAST('120000' AS TIME(3))", "cannot cast '120000' to TIME(3)"),
    ("SELECT CAST('2024-1-1' AS DATE) FROM events", "CAST('2024-1-1' AS DATE)", "cannot cast '2024-1-1' to DATE"),
    ("SELECT CAST('2024-01-01 12:00:00,5' AS TIMESTAMP) FROM events", "CAST('2024-01-01 12:00:00,5' AS TIMESTAMP)",
     "'2024-01-01 12:00:00,5' is no timestamp"),
    ("SELECT CAST('2024-01-01 12:00:00+19:00' AS TIMESTAMP_LTZ) FROM events",
     "CAST('2024-01-01 12:00:00+19:00' AS TIMESTAMP_LTZ)", "is no timestamp"),
    ("SELECT CONVERT_TZ(name, 'UTC', 'Mars/Base') FROM events", "'Mars/Base'", "'Europe/Zurich', 'UTC' or '+02:00'"),
    ("SELECT ts + INTERVAL '36500' DAY(5) AS x FROM events", "'36500'", "leave it out: INTERVAL '36500' DAY"),
    # The help of a watermark names a column that does not exist yet.
    ("CREATE TABLE t (ts TIMESTAMP(9), WATERMARK FOR ts AS ts) WITH (" + FILE + ")", "ts", "event_time AS CAST(ts AS TIMESTAMP(6))"),
    ("SELECT DATE_FORMAT(ts, 'HH:mm Z') AS x FROM events", "'HH:mm Z'", "'Z' in the pattern"),
    ("SELECT * FROM events WHERE ts < '2024-05-01 12:00:00+02:00'", "ts < '2024-05-01 12:00:00+02:00'", "it is a TIMESTAMP_LTZ"),
    ("CREATE TABLE t (ts BIGINT, WATERMARK FOR ts AS ts) WITH (" + FILE + ")", "ts",
     "event_time AS to_timestamp_seconds(ts)"),
    ("CREATE TABLE t (a BIGINT, WATERMARK FOR a AS a) WITH (" + FILE + ")", "a", "ts AS to_timestamp_seconds(a)"),
    ("CREATE TABLE t (ts BIGINT) WITH (" + FILE + "); " + window("INTERVAL '1' SECOND", table="TABLE t"),
     "ts", "event_time AS to_timestamp_seconds(ts)"),
    # Options.
    ("CREATE TABLE t (a BIGINT) WITH ('connector' = 'nowhere-near'); SELECT a FROM t", "'nowhere-near'",
     "connectors to read from are channel, datagen, file, http, kafka, memory, nexmark, socket, stdin"),
    ("CREATE TABLE t (alpha BIGINT, beta BIGINT) WITH ('connector' = 'datagen', 'fields.alpha.mni' = '1')",
     "'fields.alpha.mni'", "did you mean 'fields.alpha.min'?"),
    ("CREATE TABLE t (a BIGINT, b BIGINT) WITH ('connector' = 'datagen', 'fields.a.zzzz' = '1')",
     "'fields.a.zzzz'", "'fields.a."),
    ("CREATE TABLE t (a BIGINT) WITH ('connector' = 'file', 'format' = 'csv', 'path' = '/no/such/file'); SELECT a FROM t",
     "'/no/such/file'", "there is no directory '/no'; check the path"),
    # Types.
    ("SELECT SUBSTRING(k, 1, 2) FROM events", "SUBSTRING(k, 1, 2)", "it takes SUBSTRING(STRING, BIGINT)"),
    ("SELECT UPPER(k) FROM events", "UPPER(k)", "there is no UPPER of BIGINT"),
    ("SELECT name, ABS(name) FROM events", "ABS(name)", "there is no ABS of STRING"),
    ("SELECT DATE_FORMAT(k, 'yyyy') FROM events", "DATE_FORMAT(k, 'yyyy')", "no DATE_FORMAT of BIGINT"),
    ("SELECT k + name FROM events", "k + name", "+ does not go with BIGINT and STRING"),
    ("SELECT ts - 5 FROM events", "ts - 5", "INTERVAL '5' SECOND"),
    ("SELECT k * INTERVAL '1' DAY FROM events", "k * INTERVAL '1' DAY", "* does not go with BIGINT and INTERVAL"),
    ("SELECT INTERVAL '1-12' YEAR TO MONTH FROM events", "'1-12'", "write for example INTERVAL '1-02' YEAR TO MONTH"),
    (f"SELECT SUM(ts - ts) AS s {TUMBLE} {GROUP}", "SUM(ts - ts)", "aggregate its seconds: EXTRACT(EPOCH FROM x)"),
    ("SELECT GREATEST(ts - ts, INTERVAL '1' DAY) FROM events", "GREATEST(ts - ts, INTERVAL '1' DAY)", "there is no GREATEST of INTERVAL"),
    ("SELECT COUNT(*) AS n FROM events GROUP BY CASE WHEN k = 1 THEN INTERVAL '24' HOUR ELSE INTERVAL '1' DAY END",
     "CASE WHEN k = 1 THEN INTERVAL '24' HOUR ELSE INTERVAL '1' DAY END", "INTERVAL cannot be grouped by"),
    ("SELECT k FROM events WHERE ts > 5", "ts > 5", "TIMESTAMP(3) cannot be compared with BIGINT"),
    ("SELECT k FROM events WHERE ts BETWEEN 0 AND 5", "ts BETWEEN 0 AND 5", "TIMESTAMP(3) cannot be compared with BIGINT"),
    ("SELECT k BETWEEN ts AND ts FROM events", "k BETWEEN ts AND ts", "BIGINT cannot be compared with TIMESTAMP(3)"),
    ("SELECT EXTRACT(YEAR FROM CAST(k AS DECIMAL(9, 2))) FROM events", "EXTRACT(YEAR FROM CAST(k AS DECIMAL(9, 2)))",
     "there is no EXTRACT of DECIMAL(9, 2)"),
    ("SELECT EXTRACT(MONTH FROM ts - ts) FROM events", "EXTRACT(MONTH FROM ts - ts)", "TIMESTAMPDIFF(MONTH, a, b) counts whole ones"),
    ("SELECT TIMESTAMPDIFF(FORTNIGHT, ts, ts) FROM events", "FORTNIGHT", "the units are NANOSECOND, MICROSECOND"),
    ("SELECT TIMESTAMPDIFF(SECOND, ts, k) FROM events", "TIMESTAMPDIFF(SECOND, ts, k)", "no TIMESTAMPDIFF of TIMESTAMP(3), BIGINT"),
    ("SELECT DATEDIFF(DAY, ts, ts) FROM events", "DATEDIFF", "write TIMESTAMPDIFF(unit, from, to)"),
    ("SELECT FLOOR(k TO DAY) FROM events", "k", "there is no FLOOR TO a unit of BIGINT"),
    ("SELECT CAST(ts AS DATE) + INTERVAL '1' HOUR FROM events", "CAST(ts AS DATE) + INTERVAL '1' HOUR", "CAST(x AS TIMESTAMP(3))"),
    ("SELECT DATE_FORMAT(ts - ts, 'HH') FROM events", "DATE_FORMAT(ts - ts, 'HH')", "there is no DATE_FORMAT of INTERVAL"),
    ("SELECT TRUNCATE(name) FROM events", "TRUNCATE(name)", "it takes TRUNCATE(number)"),
    ("SELECT LOCATE(k, 5) FROM events", "LOCATE(k, 5)", "there is no LOCATE of"),
    ("SELECT k, 9223372036854775807 + 1 FROM events", "9223372036854775807 + 1", "does not fit BIGINT"),
    ("SELECT CAST('99999999999999999999999999999999999999' AS DECIMAL(38, 0)) + 1 FROM events",
     "CAST('99999999999999999999999999999999999999' AS DECIMAL(38, 0)) + 1", "does not fit DECIMAL(38, 0)"),
    ("SELECT name SIMILAR TO '(a' FROM events", "name SIMILAR TO '(a'", "'(a' is no pattern of SIMILAR TO: a ( is never closed"),
    ("SELECT name SIMILAR TO 5 FROM events", "name SIMILAR TO 5", "SIMILAR TO compares texts"),
    ("SELECT k FROM events WHERE ts > 'yesterday'", "ts > 'yesterday'", "'yesterday' is no timestamp"),
    ("SELECT k FROM events WHERE k = 'abc'", "k = 'abc'", "cannot cast 'abc' to BIGINT"),
    ("SELECT name LIKE 5 FROM events", "name LIKE 5", "LIKE compares texts"),
    ("SELECT k.x FROM events", "k.x", "there is no 'x' in a value of type BIGINT"),
    ("SELECT k FROM events WHERE name = N'ann'", "N'ann'", "this way to write a constant does not run"),
    ("SELECT X'0g' FROM events", "X'0g'", "two hexadecimal digits for each byte"),
    (f"SELECT COUNT(k, v) AS n {TUMBLE} {GROUP}", "COUNT", "takes one argument, not 2"),
    ("SELECT COALESCE() FROM events", "COALESCE()", "COALESCE needs arguments"),
    ("SELECT REGEXP_LIKE(name, '(') FROM events", "REGEXP_LIKE(name, '(')", "'(' is no regular expression: unclosed group"),
    ("SELECT name LIKE 'a!x' ESCAPE '!' FROM events", "'a!x'", "must stand before %, _ or itself"),
    ("SELECT name LIKE 'a!%' ESCAPE '!!' FROM events", "'a!%'", "ESCAPE takes one character"),
    ("SELECT name LIKE name ESCAPE '!' FROM events", "name", "must be a text in quotes"),
    ("SELECT CAST(ts AS BOOLEAN) FROM events", "CAST(ts AS BOOLEAN)", "cannot be cast to BOOLEAN"),
    ("SELECT CAST(1.5 AS TIMESTAMP) FROM events", "CAST(1.5 AS TIMESTAMP)",
     "there is no CAST of DECIMAL(2, 1) to TIMESTAMP"),
    ("SELECT CAST(k AS TIMESTAMP(3)) FROM events", "CAST(k AS TIMESTAMP(3))",
     "help: write TO_TIMESTAMP_LTZ(x, 0) where it counts seconds"),
    ("SELECT DECIMAL '1.5e3' FROM events", "'1.5e3'", "'1.5e3' is no DECIMAL"),
    ("SELECT CAST(k AS INTT) FROM events", "CAST(k AS INTT)", "did you mean INT?"),
    ("SELECT k::INTT FROM events", "k::INTT", "did you mean INT?"),
    (f"SELECT SUM(name) AS s {TUMBLE} {GROUP}", "SUM(name)", "there is no SUM of STRING"),
    (f"SELECT SUM(CAST(ts AS TIME)) AS s {TUMBLE} {GROUP}", "SUM(CAST(ts AS TIME))", "there is no SUM of TIME(0)"),
    (f"SELECT SUM(CAST(ts AS TIMESTAMP_LTZ(3))) AS s {TUMBLE} {GROUP}", "SUM(CAST(ts AS TIMESTAMP_LTZ(3)))",
     "there is no SUM of TIMESTAMP_LTZ(3)"),
    (f"SELECT AVG(ts) AS s {TUMBLE} {GROUP}", "AVG(ts)", "there is no AVG of TIMESTAMP(3)"),
    (f"SELECT SUM(v, k) AS s {TUMBLE} {GROUP}", "SUM", "takes one argument, not 2"),
    (f"SELECT SUM(*) AS s {TUMBLE} {GROUP}", "SUM", "takes one argument, not *"),
    (f"SELECT CORR(v) AS s {TUMBLE} {GROUP}", "CORR", "takes two arguments, not 1"),
    (f"SELECT VAR_POP(k, v) AS s {TUMBLE} {GROUP}", "VAR_POP", "takes one argument, not 2"),
    (f"SELECT STDDEV(name) AS s {TUMBLE} {GROUP}", "STDDEV(name)", "there is no STDDEV of STRING"),
    (f"SELECT BIT_OR(v * 0.5) AS s {TUMBLE} {GROUP}", "BIT_OR(v * 0.5)", "there is no BIT_OR of DECIMAL"),
    (f"SELECT BOOL_AND(v) AS s {TUMBLE} {GROUP}", "BOOL_AND(v)", "there is no BOOL_AND of BIGINT"),
    (f"SELECT ARRAY_AGG(DISTINCT ROW(k, v)) AS x {TUMBLE} {GROUP}", "ARRAY_AGG(DISTINCT ROW(k, v))",
     "DISTINCT inside ARRAY_AGG does not go with values of type ROW"),
    (f"SELECT LAST_VALUE(DISTINCT k) AS x {TUMBLE} {GROUP}", "LAST_VALUE(DISTINCT k)",
     "DISTINCT inside LAST_VALUE does not run"),
    ("SELECT CURRENT_WATERMARK(PROCTIME()) AS w FROM events", "CURRENT_WATERMARK",
     "takes a rowtime attribute, and PROCTIME() is processing time"),
    # Conditions: the same rule everywhere.
    ("SELECT k FROM events WHERE k", "k", "a condition must be BOOLEAN, and k is BIGINT"),
    ("SELECT k FROM events WHERE NOT k", "NOT k", "NOT takes a condition"),
    ("SELECT k FROM events WHERE k = 1 AND v", "k = 1 AND v", "AND goes between conditions"),
    (f"SELECT k, COUNT(*) AS n {TUMBLE} {GROUP}, k HAVING k", "k", "a condition must be BOOLEAN"),
    (f"SELECT COUNT(*) FILTER (WHERE k) AS n {TUMBLE} {GROUP}", "k", "a condition must be BOOLEAN"),
    ("SELECT CASE WHEN k THEN 1 END FROM events", "k", "a condition must be BOOLEAN"),
    ("SELECT IF(k, 1, 2) FROM events", "k", "a condition must be BOOLEAN"),
    # Grouping.
    (f"SELECT k, v, COUNT(*) AS n {TUMBLE} {GROUP}, k", "v", "add v to GROUP BY, or aggregate it"),
    (f"SELECT k, v + 1 AS w, COUNT(*) AS n {TUMBLE} {GROUP}, k", "v", "neither in GROUP BY"),
    (f"SELECT window_start, k {TUMBLE} GROUP BY window_end, k", "window_start", "neither in GROUP BY"),
    (f"SELECT COUNT(*) + 1 AS n {TUMBLE}", "COUNT(*)", "GROUP BY window_start, window_end"),
    (f"SELECT DISTINCT k {TUMBLE}", "DISTINCT", "GROUP BY window_start, window_end"),
    ("SELECT k FROM events HAVING v > 1", "v > 1", "write WHERE"),
    ("SELECT DISTINCT " + ", ".join(f"k + {i}" for i in range(65)) + " FROM events", "DISTINCT", "groups by 65 values"),
    (f"SELECT * {TUMBLE} {GROUP}", "*", "name the columns"),
    (f"SELECT k, COUNT(*) AS n {TUMBLE} {GROUP}, k HAVING v > 1", "v", "neither in GROUP BY"),
    (f"SELECT k {TUMBLE} WHERE COUNT(*) > 1 {GROUP}, k", "COUNT(*)", "HAVING"),
    (f"SELECT SUM(COUNT(*)) AS s {TUMBLE} {GROUP}", "COUNT(*)", "within another one"),
    (f"SELECT k, COUNT(*) AS n {TUMBLE} GROUP BY k", "k", "GROUP BY window_start, window_end, …"),
    ("SELECT COUNT(k) FROM events GROUP BY 7", "7", "SELECT has only 1 column"),
    # Windows.
    (window("INTERVAL '1' SECOND", time="DESCRIPTOR(tss)"), "tss", "did you mean 'ts'?"),
    (window("INTERVAL '1' SECOND", time="DESCRIPTOR(k)"), "k", "write DESCRIPTOR(ts)"),
    (window("INTERVAL '1' SECOND", time="ts"), "ts", "must be DESCRIPTOR(time_column)"),
    # Over the result of a window: its event time is window_time, and nothing else.
    (f"CREATE VIEW w AS SELECT window_end AS t, k, COUNT(*) AS n {TUMBLE} {GROUP}, k;\n"
     + window("INTERVAL '1' MINUTE", table="TABLE w", time="DESCRIPTOR(t)"), "t", "that is window_time: select it"),
    (f"CREATE VIEW w AS SELECT window_time AS t, k, COUNT(*) AS n {TUMBLE} {GROUP}, window_time, k;\n"
     + window("INTERVAL '1' MINUTE", table="TABLE w", time="DESCRIPTOR(n)"), "n", "not the event time of a window's"),
    (window("INTERVAL '1' MINUTE", table="(SELECT ts, COUNT(*) AS n FROM events GROUP BY ts)"), "ts",
     "has no event time"),
    (window("INTERVAL '1' MINUTE", table=f"(SELECT ts, window_time AS t {TUMBLE})", time="DESCRIPTOR(ts)"), "ts",
     "group by the first one"),
    ("SELECT k, COUNT(*) AS m FROM (SELECT k FROM events LIMIT 3) GROUP BY k", "3", "after a LIMIT"),
    (window("INTERVAL '1' SECOND", table="TABLE event"), "event", "did you mean 'events'?"),
    (window("INTERVAL '1' SECOND", name="TUMBEL"), "TUMBEL", "did you mean TUMBLE?"),
    (window("INTERVAL '5' SECOND, INTERVAL '1' SECOND", name="HOP"), "'1'", "takes the slide first, then the size"),
    (window("INTERVAL '2' SECOND, INTERVAL '5' SECOND", name="CUMULATE"), "'5'", "a size of 4 s"),
    (window("INTERVAL '5' SECOND", name="HOP"), "HOP", "a slide, a size and perhaps an offset"),
    (window("10"), "10", "must be an interval"),
    (window("INTERVAL '10'"), "'10'", "an interval needs a unit"),
    (window("INTERVAL '10' SECND"), "SECND", "did you mean SECOND?"),
    (window("INTERVAL 'ten' SECOND"), "'ten'", "'ten SECOND' is no interval"),
    (window("INTERVAL '1' MONTH"), "'1'", "which differ in length"),
    (window("INTERVAL '0.0000001' SECOND"), "'0.0000001'", "whole number of milliseconds"),
    (window("INTERVAL '1000000000' DAY"), "'1000000000'", "shorter than 290,000 years"),
    ("SELECT TUMBLE_START(ts, INTERVAL '1' SECOND) FROM events", "TUMBLE_START", "goes with GROUP BY TUMBLE(…)"),
    ("SELECT TUMBLE_END(ts, INTERVAL '1' SECOND) FROM events", "TUMBLE_END", "goes with GROUP BY TUMBLE(…)"),
    ("SELECT HOP_START(ts, INTERVAL '1' SECOND, INTERVAL '2' SECOND) FROM events", "HOP_START",
     "goes with GROUP BY HOP(…)"),
    # What does not run.
    ("SELECT a.k FROM events a RIGHT SEMI JOIN events b ON a.k = b.k", "events b", "write LEFT SEMI JOIN"),
    ("SELECT k, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v) AS rn FROM events WHERE rn = 1", "rn",
     "write SELECT … FROM (SELECT *, ROW_NUMBER()"),
    ("SELECT a.k FROM events a JION events b ON a.k = b.k", "JION", "did you mean JOIN?"),
    ("SELECT a.k FROM events a LEFT JION events b ON a.k = b.k", "JION", "did you mean JOIN?"),
    ("SELECT a.k FROM events a LEFT OUTTER JOIN events b ON a.k = b.k", "OUTTER", "did you mean OUTER?"),
    ("SELECT a.k FROM events a OUTER JOIN events b ON a.k = b.k", "OUTER", "write LEFT JOIN"),
    ("SELECT a.k FROM events a JOIN events FOR SYSTEM TIME AS OF a.ts AS b ON a.k = b.k", "FOR",
     "write JOIN t FOR SYSTEM_TIME AS OF"),
    ("SELECT a.k FROM events a JOIN events AS b FOR SYSTEM_TIME AS OF a.ts ON a.k = b.k", "FOR",
     "the alias comes last"),
    ("SELECT k FROM events WHERE EXIST (SELECT 1 FROM events)", "EXIST", "did you mean EXISTS?"),
    ("SELECT events.k FROM events JOIN events ON events.k = events.v", "events", "give them different aliases"),
    ("SELECT a.k FROM events a JOIN events b", "events b", "CROSS JOIN for all pairs"),
    ("SELECT a.k FROM events a JOIN events b ON a.k", "a.k", "must be BOOLEAN"),
    ("SELECT k FROM events WHERE k > 1 OR EXISTS (SELECT 1 FROM events)", "SELECT 1 FROM events",
     "beside other conditions with AND"),
    ("SELECT k FROM events WHERE k NOT IN (SELECT v FROM events)", "k NOT IN (SELECT v FROM events",
     "v IS NOT NULL"),
    (f"SELECT CORR(DISTINCT k, v) AS n {TUMBLE} {GROUP}", "CORR(DISTINCT k, v)", "SELECT DISTINCT"),
    (f"SELECT GROUPING(k) AS n {TUMBLE} {GROUP}, k", "GROUPING(k)", "without them, each row has all keys"),
    ("SELECT k FROM events INTERSECT SELECT v FROM events", "INTERSECT", "HAVING MAX(a) = 1 AND MAX(b) = 1"),
    ("SELECT k FROM events EXCEPT SELECT v FROM events", "EXCEPT", "HAVING MAX(a) = 1 AND MAX(b) = 0"),
    ("SELECT k, (SELECT MAX(v) FROM events) AS m FROM events", "SELECT MAX(v) FROM events", "FROM t CROSS JOIN (SELECT"),
    ("CREATE TABLE x WITH ('connector' = 'print') AS SELECT k FROM events", "AS", "INSERT INTO x SELECT"),
    ("SELECT * FROM TABLE(split(k))", "split", "there is no table function 'split'"),
    ("SELECT * FROM events, LATERAL TABLE(split(k)) AS s", "TABLE(split(k)) AS s", "a table function does not run"),
    ("SELECT * FROM events MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts MEASURES A.v AS x PATTERN (A B) WITHIN INTERVAL "
     "'10' SECOND DEFINE A AS A.v > 1) AS m", "MATCH_RECOGNIZE", "join the table with itself"),
    (f"CREATE TABLE plain (ts TIMESTAMP(3), a BIGINT) WITH ({FILE}); CREATE VIEW late AS SELECT ts + INTERVAL '1' HOUR AS "
     "t2 FROM plain; SELECT COUNT(*) AS n FROM TABLE(TUMBLE(TABLE "
     f"late, DESCRIPTOR(t2), INTERVAL '1' SECOND)) {GROUP}", "t2", "event_time AS ts + INTERVAL '1 h',"),
    ("SELECT k FROM events UNION ALL SELECT k, name FROM events", "k, name", "select as many columns in each"),
    ("SELECT k FROM events UNION ALL SELECT name FROM events", "name", "CAST(name AS BIGINT)"),
    ("SELECT k FROM events UNION ALL (SELECT k FROM events LIMIT 3)", "3", "put it at the end"),
    (f"SELECT n FROM (SELECT COUNT(*) AS n {TUMBLE} {GROUP}) UNION ALL SELECT k FROM events", "UNION",
     "EXECUTE STATEMENT SET BEGIN INSERT INTO"),
    ("SELECT COUNT(*) AS n FROM TABLE(TUMBLE((SELECT ts FROM events UNION ALL SELECT ts + INTERVAL '1' SECOND FROM "
     f"events), DESCRIPTOR(ts), INTERVAL '1' SECOND)) {GROUP}", "ts", "select 'ts' there, in the place of 'ts'"),
    ("EXECUTE STATEMENT SET BEGIN SELECT k FROM events; END", "SELECT", "'connector' = 'print'"),
    ("EXECUTE STATEMENT SET BEGIN INSERT INTO nowhere SELECT k FROM events END", "END", "SELECT …; END"),
    ("EXECUTE STATEMENT SET INSERT INTO nowhere SELECT k FROM events; END", "EXECUTE STATEMENT SET",
     "EXECUTE STATEMENT SET BEGIN INSERT INTO"),
    ("SELECT TOP 5 k FROM events", "TOP", "LIMIT"),
    ("SELECT k FROM events LIMIT k", "k", "take whole numbers"),
    ("SELECT k & v FROM events", "k & v", "the operator & does not run here"),
    ("SELECT k | v FROM events", "k | v", "|| between texts"),
    ("SELECT k ^ v FROM events", "k ^ v", "write POWER(x, y) for a power"),
    ("SELECT ~k FROM events", "k", "the operator ~ does not run here"),
    # Operators of several words.
    ("SELECT k IS DISTINCT FORM v FROM events", "FORM", "expected FROM after IS [NOT] DISTINCT, found FORM"),
    ("SELECT k IS NOT DISTINCT v FROM events", "v", "expected FROM after IS [NOT] DISTINCT, found v"),
    ("SELECT name SIMILAR 'a' FROM events", "'a'", "expected TO after SIMILAR"),
    ("SELECT name LIKE 'a' ESCAPE name FROM events", "name", "ESCAPE takes one character"),
    ("SELECT TIMESTAMPDIFF(SECOND, ts) FROM events", "TIMESTAMPDIFF", "takes a unit and two times"),
    ("SELECT TIMESTAMPADD(SECOND, ts) FROM events", "TIMESTAMPADD", "takes a unit, a number and a time"),
    # Dates and numbers, and times of what is none.
    ("SELECT CAST(ts AS DATE) = 5 FROM events", "CAST(ts AS DATE) = 5", "DATE cannot be compared with BIGINT"),
    ("SELECT k FROM events WHERE k > CAST(ts AS DATE)", "k > CAST(ts AS DATE)", "for example DATE '2024-01-31'"),
    ("SELECT CAST(ts AS DATE) BETWEEN 1 AND 2 FROM events", "CAST(ts AS DATE) BETWEEN 1 AND 2",
     "DATE cannot be compared with BIGINT"),
    ("SELECT CAST(ts AS DATE) IN (1, 2) FROM events", "CAST(ts AS DATE) IN (1, 2)",
     "DATE cannot be compared with BIGINT"),
    ("SELECT NULLIF(k, CAST(ts AS DATE)) FROM events", "NULLIF(k, CAST(ts AS DATE))",
     "there is no NULLIF of DATE, BIGINT"),
    ("SELECT CASE WHEN k = 1 THEN k ELSE CAST(ts AS DATE) END FROM events",
     "CASE WHEN k = 1 THEN k ELSE CAST(ts AS DATE) END", "there is no CASE of DATE, BIGINT"),
    ("SELECT - ts FROM events", "- ts", "goes with numbers and intervals only"),
    ("SELECT TO_TIMESTAMP_SECONDS(k, 5) FROM events", "TO_TIMESTAMP_SECONDS(k, 5)",
     "there is no TO_TIMESTAMP_SECONDS of BIGINT, BIGINT"),
    ("SELECT TO_UNIXTIME(X'00') FROM events", "TO_UNIXTIME(X'00')", "there is no TO_UNIXTIME of BYTES"),
    ("SELECT EXTRACT(YEAR FROM 5)", "EXTRACT(YEAR FROM 5)", "there is no EXTRACT of BIGINT"),
    ("SELECT 1, YEAR(k) FROM events", "YEAR(k)", "there is no YEAR of BIGINT"),
    ("SELECT CAST('abc' AS DECIMAL(10, 2)) FROM events", "CAST('abc' AS DECIMAL(10, 2))",
     "cannot cast 'abc' to DECIMAL"),
    # An order that would be lost.
    ("SELECT k FROM (SELECT k FROM events ORDER BY k) WHERE k > 1", "k", "orders nothing"),
    ("WITH e AS (SELECT k FROM events ORDER BY k DESC) SELECT k FROM e LIMIT 1", "k", "orders nothing"),
    ("CREATE VIEW w AS SELECT k FROM events ORDER BY k; SELECT k FROM w WHERE k > 1", "k",
     "orders nothing"),
    # VALUES.
    ("VALUES (1), (2, 3)", "VALUES (1), (2, 3)", "as many values"),
    ("VALUES (1), ('a'), (TRUE)", "VALUES (1), ('a'), (TRUE)", "BOOLEAN"),
    ("INSERT INTO sink VALUES ('a', 'b'), ('c', 'd')", "sink", "write CAST('a' AS BIGINT) in VALUES"),
    # INSERT, CREATE, DROP, SET.
    ("INSERT INTO snk SELECT k, name FROM events", "snk", "did you mean 'sink'?"),
    ("INSERT INTO sink SELECT k FROM events", "sink", "takes 2 columns"),
    ("INSERT INTO sink SELECT name, name FROM events", "sink", "select CAST(name AS BIGINT)"),
    (table("", "'connector' = 'fiel'"), "'fiel'", "did you mean 'file'?"),
    (table("", FILE.replace("path", "pth")), "'pth'", "did you mean 'path'?"),
    (table("", FILE.replace("'csv'", "'cvs'")), "'cvs'", "did you mean 'csv'?"),
    (table("", FILE.replace("events.csv", "event.csv")), "'event.csv'", "events.csv'?"),
    (table("", "'connector' = 'file' 'path' = 'x'"), "'path'", "is a comma missing before it?"),
    (table("", FILE + ", 'csv.heder' = 'true'"), "'csv.heder'", "did you mean 'csv.header'?"),
    (table("", "connector = 'file'"), "connector", "WITH ('key' = 'value', …)"),
    # A table need not be used.
    ("CREATE TABLE t (a BIGINT) WITH ('connector' = 'fiel')", "'fiel'", "did you mean 'file'?"),
    ("CREATE TABLE t (a BIGINT) WITH ('connector' = 'pint')", "'pint'", "did you mean 'print'?"),
    ("CREATE TABLE t (a BIGINT) WITH ('connector' = 'jdbc'); SELECT a FROM t", "'jdbc'", "connectors to read from are"),
    ("CREATE TABLE t (a BIGINT) WITH ('connector' = 'jdbc'); INSERT INTO t SELECT 1", "'jdbc'", "connectors to write to are"),
    ("CREATE TABLE t (a BIGINT) WITH (" + FILE.replace("path", "pth") + ")", "'pth'", "did you mean 'path'?"),
    ("CREATE TABLE t (a BIGINT) WITH ('connector' = 'print', 'frmat' = 'csv')", "'frmat'", "did you mean 'format'?"),
    ("CREATE TABLE t (a BIGINT) WITH ('connector' = 'datagen', 'fields.a.mn' = '1')", "'fields.a.mn'",
     "did you mean 'fields.a.min'?"),
    ("CREATE TABLE t (a BIGINT) WITH ('connector' = 'memory', 'tabel' = 'x')", "'tabel'", "did you mean 'table'?"),
    (table(", b BIGIN"), "BIGIN", "did you mean BIGINT?"),
    (table(", b VARCHR(10)"), "VARCHR(10)", "did you mean VARCHAR?"),
    (table(", b DECIMAL(50, 2)"), "DECIMAL(50, 2)", "1 <= p <= 38"),
    (table(" b BIGINT"), "b", "is a comma missing before it?"),
    (table(", a INT"), "a", "two columns 'a'"),
    (table(", b AS aa + 1"), "aa", "did you mean 'a'?"),
    (table(", b AS UPPER(a)"), "UPPER(a)", "there is no UPPER of BIGINT"),
    (table(", WATERMARK ts AS ts"), "ts", "write WATERMARK FOR ts AS ts - INTERVAL '5' SECOND"),
    (table(", WATERMARK FOR tss AS tss"), "tss", "did you mean 'ts'?"),
    (table(", WATERMARK FOR a AS a"), "a", "it is BIGINT, not a timestamp"),
    (table(", WATERMARK FOR ts AS ts - 5"), "ts - 5", "INTERVAL '5' SECOND"),
    ("CREATE TABLE events (a BIGINT) WITH (" + FILE + ")", "events", "exists already"),
    ("CREATE VIEW w AS SELECT kk FROM events", "kk", "did you mean 'k'?"),
    ("DROP TABLE evnts", "evnts", "did you mean 'events'?"),
    ("SELECT ABS(*) FROM events", "ABS(*)", "name a column; to count rows, write COUNT(*)"),
    ("SET 'memroy' = '1GB'", "'memroy'", "did you mean 'memory'?"),
    ("SET 'memory' = 'lots'", "'lots'", "'1GB'"),
]

# Words of the libraries below that must not reach people.
FOREIGN = re.compile(r"DataFusion|ParserError|Int64|Utf8|Timestamp\(|coerc|\$input|planning:|lIMIT|EOF|Wildcard")


@pytest.mark.parametrize("sql, underlined, words", WRONG, ids=[sql[:60] for sql, _, _ in WRONG])
def test_wrong_sql_is_underlined_and_explained(script, sql, underlined, words):
    script.data("events.csv", "ts,k,v,name\n2024-01-01 00:00:01,1,10,ann\n")
    result = script.run(TABLES + sql + ";\n")
    assert result.code == 2, result.stderr
    assert result.stdout == b""
    assert words in result.stderr, result.stderr
    assert not FOREIGN.search(result.stderr), result.stderr
    check_place(result, TABLES + sql + ";\n", underlined)


def test_a_file_without_an_event_time_says_what_it_has_and_what_to_write(script):
    script.data("plain.csv", "k,name\n1,ann\n")
    text = window("INTERVAL '1' SECOND", table="TABLE 'plain.csv'")
    for query, underlined in ((text, "ts"), (text.replace("(ts)", "(k)"), "k")):
        result = script.run(query + ";\n")
        assert result.code == 2, result.stderr
        for words in ("millstream init 'plain.csv'", "ts AS to_timestamp_seconds(k),",
                      "WATERMARK FOR ts AS ts - INTERVAL '5' SECOND"):
            assert words in result.stderr, result.stderr
        check_place(result, query, underlined)
    result = script.run(text + ";\n")
    assert "there is no column 'ts', and the file has none that can be the event time: k BIGINT, name STRING" in (
        result.stderr), result.stderr
    # A table with one names it, and one without shows its columns, too.
    result = script.run(events() + window("INTERVAL '1' SECOND", time="DESCRIPTOR(moment)") + ";\n")
    assert "the event time of 'events' is 'ts': write DESCRIPTOR(ts)" in result.stderr, result.stderr
    table = "CREATE TABLE t (day STRING) WITH (" + FILE + ");\n"
    result = script.run(table + window("INTERVAL '1' SECOND", table="TABLE t") + ";\n")
    for words in ("table 't' has no WATERMARK: its columns are day STRING", "add one to CREATE TABLE t",
                  "ts AS CAST(day AS TIMESTAMP(3)),"):
        assert words in result.stderr, result.stderr


# What stands before the mistake, and the terminal columns that it takes.
@pytest.mark.parametrize("before, columns", [("'日本語'", 8), ("'e\u0301'", 3), ("'\t'", 3), ("'🌊'", 4),
                                             ("'\u001b[31m'", 7), ("'\u200b'", 2)])
def test_carets_line_up_after_characters_of_any_width(script, before, columns):
    script.data("events.csv", "ts,k,v,name\n")
    result = script.run(TABLES + f"SELECT {before}, kk FROM events;\n")
    assert result.code == 2, result.stderr
    carets = next(line for line in result.stderr.splitlines() if re.fullmatch(r" +\| +\^+", line))
    assert carets.split("|")[1] == " " * (len(" SELECT , ") + columns) + "^^", result.stderr
    assert "\x1b" not in result.stderr and "\t" not in result.stderr


# What fails on a value, and the part of the expression that does.
FAILING = [
    ("SELECT k, v + 9223372036854775807 AS x FROM events", "v + 9223372036854775807", "does not fit BIGINT"),
    ("SELECT 2 * (k / (v - 10)) AS x FROM events", "k / (v - 10)", "division by zero"),
    ("SELECT k % (v - 10) AS x FROM events", "k % (v - 10)", "division by zero"),
    ("SELECT MOD(k, v - 10) AS x FROM events", "MOD(k, v - 10)", "division by zero"),
    ("SELECT SQRT(0 - k) AS x FROM events", "SQRT(0 - k)", "SQRT(0 - k): cannot take square root of a negative"),
    ("SELECT ROUND(k * 1.7e308, -308) AS x FROM events", "ROUND(k * 1.7e308, -308)", "1.7e308 does not fit DOUBLE"),
    ("SELECT CAST(name AS DECIMAL(10, 2)) AS x FROM events", "CAST(name AS DECIMAL(10, 2))",
     "cannot cast 'ann' to DECIMAL"),
    ("SELECT REGEXP_LIKE('x', name || '(') AS x FROM events", "REGEXP_LIKE('x', name || '(')",
     "'ann(' is no regular expression: unclosed group"),
    ("SELECT ABS(-big - k) AS x FROM events", "ABS(-big - k)", "there is no 9223372036854775808 of its type"),
    ("SELECT CAST(ts AS DATE) + INTERVAL '2147483647' DAY AS x FROM events",
     "CAST(ts AS DATE) + INTERVAL '2147483647' DAY", "out of range"),
    ("SELECT k FROM events WHERE v > 3 AND CAST(name AS BIGINT) = 1", "CAST(name AS BIGINT)", "'ann'"),
    ("SELECT LENGTH(REPEAT('x', 2000000000)) AS x FROM events", "REPEAT('x', 2000000000)", "longer than 64 MB"),
    ("SELECT LENGTH(REPEAT(name, big)) AS x FROM events", "REPEAT(name, big)", "longer than 64 MB"),
    ("SELECT LENGTH(LPAD(name, v * 10000000)) AS x FROM events", "LPAD(name, v * 10000000)", "longer than 64 MB"),
    ("SELECT LENGTH(RPAD(name, 70000000, 'ab')) AS x FROM events", "RPAD(name, 70000000, 'ab')", "longer than 64 MB"),
    ("SELECT LENGTH(REPLACE(REPEAT(name, 10000), 'n', REPEAT(name, 10000))) AS x FROM events",
     "REPLACE(REPEAT(name, 10000), 'n', REPEAT(name, 10000))", "longer than 64 MB"),
    ("SELECT LENGTH(REPEAT('x', 40000000) || REPEAT('x', 40000000)) AS x FROM events",
     "REPEAT('x', 40000000) || REPEAT('x', 40000000)", "longer than 64 MB"),
    ("SELECT DATE_TRUNC('month', CAST('1677-09-22 00:00:00' AS TIMESTAMP(9))) AS x FROM events",
     "DATE_TRUNC('month', CAST('1677-09-22 00:00:00' AS TIMESTAMP(9)))", "too far from today"),
    ("SELECT DATE_BIN(INTERVAL '7' DAY, ts + INTERVAL '7975' YEAR) AS x FROM events",
     "DATE_BIN(INTERVAL '7' DAY, ts + INTERVAL '7975' YEAR)", "too far from today"),
    ("SELECT UPPER(name), CASE WHEN k = 1 THEN CAST(name AS DATE) END FROM events", "CAST(name AS DATE)",
     "cannot cast 'ann' to DATE"),
    ("CREATE VIEW w AS\n  SELECT k, v / (k - 1) AS x FROM events;\nSELECT x + 1 FROM w", "v / (k - 1)",
     "division by zero"),
    ("SELECT x FROM (SELECT v / (k - 1) AS x FROM events)", "v / (k - 1)", "division by zero"),
    (f"SELECT MAX(v / (k - 1)) AS x {TUMBLE} {GROUP}", "v / (k - 1)", "division by zero"),
    (f"SELECT COUNT(*) FILTER (WHERE v / (k - 1) > 0) AS x {TUMBLE} {GROUP}", "v / (k - 1)", "division by zero"),
    (f"SELECT v / (k - 1) AS x, COUNT(*) AS n {TUMBLE} {GROUP}, v / (k - 1)", "v / (k - 1)", "division by zero"),
    (f"SELECT k, SUM(v) / (COUNT(*) - 2) AS x {TUMBLE} {GROUP}, k", "SUM(v) / (COUNT(*) - 2)", "division by zero"),
    (f"SELECT k {TUMBLE} {GROUP}, k HAVING MAX(v) / (k - 1) > 0", "MAX(v) / (k - 1)", "division by zero"),
    (f"SELECT MAX(v) / (k - 1) AS x {TUMBLE} {GROUP}, k HAVING MAX(v)/(k-1) > 0", "MAX(v)/(k-1)", "division by zero"),
    (f"SELECT 9 % (COUNT(*) - 2) AS x {TUMBLE} {GROUP} HAVING 9%(COUNT(*)-2) > 0", "9%(COUNT(*)-2)",
     "division by zero"),
    ("SELECT SUM(x) AS s FROM (VALUES (9223372036854775807), (1)) AS t (x)", "SUM(x)", "SUM(x) overflows"),
    ("SELECT SUM(column1) AS s FROM (VALUES (9223372036854775807), (1))", "SUM(column1)", "SUM(column1) overflows"),
    (f"SELECT k, SUM(v + big) AS x {TUMBLE} {GROUP}, k", "v + big", "does not fit BIGINT"),
    # No column is read.
    ("SELECT SUM(1 / 0) AS x FROM events", "1 / 0", "division by zero"),
    ("SELECT DISTINCT 1 / 0 AS x FROM events", "1 / 0", "division by zero"),
    ("SELECT 400 % 0 AS x, COUNT(*) AS n FROM events GROUP BY 400 % 0", "400 % 0", "division by zero"),
    (f"SELECT MIN(v) AS a, SUM(big) AS b {TUMBLE} {GROUP}", "SUM(big)", "SUM(big) overflows"),
    ("CREATE TABLE t (ts TIMESTAMP(3), k BIGINT, v BIGINT, name STRING, big BIGINT,\n  w AS v / (k - 1))"
     f" WITH ({FILE});\nSELECT w FROM t", "v / (k - 1)", "division by zero"),
]


@pytest.mark.parametrize("sql, underlined, words", FAILING, ids=[sql[:60] for sql, _, _ in FAILING])
@pytest.mark.parametrize("settings", [{"workers": 1}, {"workers": 2, "batch_rows": 1, "simulate": 7}])
def test_what_fails_on_a_value_is_underlined(script, sql, underlined, words, settings):
    big = "9223372036854775807"
    script.data("events.csv", "ts,k,v,name,big\n" + f"2024-01-01 00:00:01,1,10,ann,{big}\n" * 2)
    text = events("k BIGINT, v BIGINT, name STRING, big BIGINT") + sql + ";\n"
    result = script.run(text, **settings)
    assert result.code == 1, result.stderr
    assert words in result.stderr, result.stderr
    check_place(result, text, underlined)


@pytest.mark.parametrize("sql", ["REPEAT('x', 1000000)", "CASE WHEN k > 0 THEN REPEAT('x', 1000000) END",
                                 "NULLIF(REPEAT('x', 1000000), name)", "COALESCE(name, REPEAT('x', 1000000))"])
def test_a_long_constant_is_not_written_out_for_every_row(script, sql):
    script.data("events.csv", "ts,k,v,name\n" + "2024-01-01 00:00:01,1,10,\n" * 3000)
    result = script.run(events("k BIGINT, v BIGINT, name STRING") + f"SELECT {sql} AS x FROM events;\n")
    assert result.code == 1, result.stderr
    assert "longer than 64 MB together" in result.stderr and "'batch.rows'" in result.stderr, result.stderr
    assert len(result.stderr) < 2000


@pytest.mark.parametrize("start, end", [("\ufeff", "\n"), ("", "\r\n"), ("\ufeff", "\r\n")])
def test_a_byte_order_mark_and_windows_line_ends_change_nothing(script, start, end):
    script.data("events.csv", "ts,k,v\r\n2024-01-01 00:00:01,1,10\r\n")
    good = start + (events() + "SELECT k FROM events;\n").replace("\n", end)
    result = script.run(good)
    assert (result.code, result.stdout) == (0, b"k\n1\n"), result.stderr
    for bad in (start + "SELECT k FROM evnts;\n", good + "SELECT k,\n  kk FROM events;\n"):
        bad = bad.replace("\r\n", "\n").replace("\n", end)
        result = script.run(bad)
        assert result.code == 2
        check_place(result, bad, "evnts" if "evnts" in bad else "kk")
        assert "\r" not in result.stderr


def test_grouping_by_what_looks_alike(script):
    script.data("events.csv", "ts,k,v\n" + "2024-01-01 00:00:01,1,10\n2024-01-01 00:00:02,2,20\n" * 3)
    for keys in ("k", "1", "k, 1, k", "g, k", "CAST(k AS STRING), k", "k + 1, k, k + 1"):
        select = "k AS g" if "g" in keys else "k"
        result = script.run(events() + f"SELECT {select}, COUNT(*) AS n FROM events GROUP BY {keys};")
        assert result.stdout.decode().splitlines()[1:] == ["1,3", "2,3"], (keys, result.stderr)
    result = script.run(events() + "SELECT CAST(k AS STRING) AS a, k + 1 AS b, CAST(k AS INT) + 1 AS c, SUM(v) AS d, "
                        "SUM(CAST(v AS DOUBLE)) AS e FROM events GROUP BY CAST(k AS STRING), k + 1, CAST(k AS INT) + 1;")
    assert result.stdout == b"a,b,c,d,e\n1,2,2,30,30.0\n2,3,3,60,60.0\n", result.stderr
