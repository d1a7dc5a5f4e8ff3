//! Errors about names and positions: of columns, of tables, of what WITH defines.

use millstream_sql::Outcome;

use crate::common::*;

#[test]
fn limits_are_whole_numbers_that_are_not_too_large() {
    for (limit, part) in [
        ("LIMIT 9223372036854775808", "at most 9223372036854775807, not 9223372036854775808"),
        ("LIMIT 18446744073709551615", "at most 9223372036854775807, not 18446744073709551615"),
        ("LIMIT 1 OFFSET 99999999999999999999", "at most 9223372036854775807, not 9999"),
        ("LIMIT 1.5", "take whole numbers, not 1.5"),
        ("LIMIT -1", "take whole numbers, not -1"),
    ] {
        refused(&format!("SELECT i64 FROM typed {limit}"), &[part, "query.sql:1:"]);
    }
    plan("SELECT i64 FROM typed LIMIT 9223372036854775807");
}

#[test]
fn positions_of_columns() {
    let few = "SELECT i64, i32 FROM typed ORDER BY";
    for (key, parts) in [
        ("0", ["ORDER BY 0: columns are counted from 1", "query.sql:1:37"]),
        ("i64, 3", ["ORDER BY 3: SELECT has only 2 columns", "query.sql:1:42"]),
        ("-1", ["ORDER BY -1: a column's number is whole and positive", "query.sql:1:3"]),
        ("1.5", ["ORDER BY 1.5: a column's number is whole and positive", "query.sql:1:37"]),
        ("99999999999999999999", ["SELECT has fewer columns", "query.sql:1:37"]),
        ("'i64'", ["a constant orders nothing", "without quotes: ORDER BY i64"]),
    ] {
        refused(&format!("{few} {key}"), &parts);
    }
    refused("SELECT i64, COUNT(*) FROM typed GROUP BY 0", &["GROUP BY 0: columns are counted"]);
    refused("SELECT i64, COUNT(*) FROM typed GROUP BY 3", &["SELECT has only 2 columns", ":42"]);
    let table = "CREATE TABLE wide (c0 BIGINT";
    let table = (1..300).fold(table.to_string(), |table, i| format!("{table}, c{i} BIGINT"));
    let all = format!("{table}) WITH ('connector' = 'fake');\nSELECT * FROM wide ORDER BY");
    refused(&format!("{all} 301"), &["ORDER BY 301: SELECT has only 300 columns", "sql:2:29"]);
    refused(&format!("{all} 0"), &["ORDER BY 0: columns are counted from 1", "sql:2:29"]);
}

#[test]
fn two_columns_of_one_name() {
    let same = |name: &str| format!("two columns of the result have the same name, '{name}'");
    refused("SELECT i64 AS x, i32 AS x FROM typed", &[&same("x"), "query.sql:1:25"]);
    for order in ["", " ORDER BY i32", " ORDER BY b"] {
        let query = format!("SELECT *, i32 AS b FROM typed{order}");
        refused(&query, &[&same("b"), "query.sql:1:18", "another name with AS"]);
    }
    refused("SELECT *, typed.s FROM typed", &[&same("s"), "query.sql:1:17"]);
    refused("SELECT i64 AS x, * FROM (SELECT i64, i32 AS x FROM typed)", &[&same("x")]);
}

#[test]
fn what_a_with_or_a_union_does_not_have() {
    for (query, parts) in [
        ("WITH t AS (SELECT i64 FROM typed) SELECT * FROM tt", ["sql:1:49", "did you mean 't'?"]),
        (
            "WITH t AS (SELECT i64 FROM u), u AS (SELECT i64 FROM typed) SELECT * FROM t",
            ["sql:1:28", "WITH defines 'u' only after this"],
        ),
        (
            "WITH t(x, y) AS (SELECT i64 FROM typed) SELECT * FROM t",
            ["names for 2 columns, whose query has 1", "sql:1:6"],
        ),
        (
            "SELECT i64 FROM typed UNION ALL SELECT i32 FROM typed ORDER BY i32",
            ["ORDER BY names a column that the first query", "order by a column of the first"],
        ),
        (
            "SELECT DISTINCT i64 FROM typed ORDER BY i32",
            ["SELECT DISTINCT has no column 'i32'", "order by columns that are selected"],
        ),
    ] {
        refused(query, &parts);
    }
}

#[test]
fn an_alias_is_not_known_in_its_own_select() {
    for (query, expr) in [
        ("SELECT i64 + 1 AS x, x * 2 AS y FROM typed", "i64 + 1"),
        ("SELECT x * 2 AS y, i64 + 1 AS x FROM typed", "i64 + 1"),
        ("SELECT SUM(i64) AS x, AVG(x) FROM typed", "SUM(i64)"),
        ("SELECT i64 AS d1, CASE WHEN d1 > 1 THEN 1 END FROM typed", "i64"),
    ] {
        refused(query, &["there is no column '", "within its own SELECT: write ", expr]);
    }
    refused("SELECT i64 + 1 AS x FROM typed WHERE x > 1", &["WHERE does not know the aliases"]);
}

#[test]
fn names_that_with_gives_twice() {
    let table = "CREATE TABLE wide (c0 BIGINT";
    let wide = (1..300).fold(table.to_string(), |table, i| format!("{table}, c{i} BIGINT"));
    for table in [wide, format!("{table}, c1 BIGINT")] {
        let table = format!("{table}) WITH ('connector' = 'fake');\n");
        let with = "WITH a AS (SELECT * FROM wide), a AS (SELECT c1 FROM wide)";
        let parts = ["WITH gives the name 'a' twice", "query.sql:2:33", "another name"];
        refused(&format!("{table}{with} SELECT c1 FROM a"), &parts);
        refused(&format!("{table}SELECT * FROM ({with} SELECT c1 FROM a)"), &parts[..1]);
        // A name that is given within is not known outside.
        let within = "WITH b AS (WITH a AS (SELECT * FROM wide) SELECT * FROM a)";
        refused(&format!("{table}{within} SELECT c1 FROM a"), &["there is no table 'a'"]);
    }
}

#[test]
fn passwords_are_not_shown() {
    let table = "CREATE TABLE k (v INT) WITH ('connector' = 'x', 'sasl.password' = 'hunter2')";
    let said = error(&format!("{table}; SELECT * FROM k"));
    assert!(said.contains("'sasl.password' = '*******'") && !said.contains("hunter2"), "{said}");
    match execute(&mut session(), &format!("{table}; SHOW CREATE TABLE k")) {
        Ok(Outcome::Text(text)) => assert_eq!(text, table.replace("hunter2", "*******") + ";"),
        other => panic!("no text: {other:?}"),
    }
}
