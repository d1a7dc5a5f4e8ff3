//! Tests that nested expressions are planned in a number of steps that grows in proportion to the
//! text, or are refused at once. Without that, none of these tests would end.

use millstream_sql::Outcome;

use crate::common::*;

/// `f` applied so many times.
fn nested(times: usize, first: &str, f: impl Fn(&str) -> String) -> String {
    (0..times).fold(first.to_string(), |text, _| f(&text))
}

fn explained(text: &str) -> String {
    match execute(&mut session(), text) {
        Ok(Outcome::Query(planned)) => planned.explain,
        Ok(other) => panic!("no query: {other:?}"),
        Err(e) => panic!("{}", e.render()),
    }
}

#[test]
fn choices_within_each_other_stay_as_they_are_written() {
    for (name, call) in [
        ("coalesce", (|x: &str| format!("COALESCE({x}, i32)")) as fn(&str) -> String),
        ("coalesce", |x| format!("COALESCE(i32, {x})")),
        ("ifnull", |x| format!("IFNULL({x}, i64)")),
        ("ifnull", |x| format!("NVL({x}, i64)")),
        ("ifnull", |x| format!("nvl(i64, {x})")),
        ("power", |x| format!("POW({x}, 2)")),
        ("nvl2", |x| format!("NVL2({x}, i64, u8)")),
        ("nullif", |x| format!("NULLIF({x}, i32)")),
        ("greatest", |x| format!("GREATEST({x}, i32)")),
    ] {
        let expr = nested(40, "i64", call);
        for text in [
            format!("SELECT {expr} AS v FROM typed"),
            format!("SELECT COUNT(*) AS n FROM typed WHERE {expr} > 1"),
            format!("SELECT MAX({expr}) AS n FROM typed GROUP BY {expr}"),
            format!("SELECT i64, COUNT(*) AS n FROM typed GROUP BY i64 HAVING {expr} > 1")
                .replace("i32", "1")
                .replace("u8", "2"),
        ] {
            let explained = explained(&text).to_lowercase();
            let calls = explained.matches(&format!("{name}(")).count();
            // Each stands in the logical plan and in the pipelines, up to three times.
            assert!((80..=240).contains(&calls), "{calls} in {text}");
        }
    }
}

#[test]
fn views_and_columns_of_choices_grow_by_one_each() {
    let mut views = String::from("CREATE VIEW v0 AS SELECT i64 AS a FROM typed;");
    let mut columns = String::from("CREATE TABLE c (b BIGINT, c0 AS COALESCE(b, 1)");
    for i in 1..100 {
        views += &format!("CREATE VIEW v{i} AS SELECT COALESCE(a, {i}) AS a FROM v{};", i - 1);
        columns += &format!(", c{i} AS COALESCE(c{}, {i})", i - 1);
    }
    plan(&format!("{views} SELECT a FROM v99"));
    plan(&format!("{columns}) WITH ('connector' = 'fake'); SELECT c99 FROM c"));
    // Twice each: what is too large to be written out stays a column.
    let twice = (1..100).map(|i| format!(", c{i} AS c{} + c{0}", i - 1)).collect::<String>();
    let table =
        format!("CREATE TABLE c (b BIGINT, c0 AS b + b{twice}) WITH ('connector' = 'fake');");
    plan(&format!("{table} SELECT c99 FROM c"));
}

#[test]
fn results_of_several_values_of_a_case_are_written_once() {
    let depth = 40;
    let result = nested(depth, "i64", |x| format!("CASE i32 WHEN 1, 2, 3 THEN {x} ELSE 0 END"));
    let value = nested(depth, "i64", |x| format!("CASE {x} WHEN 1, 2, 3 THEN i64 ELSE 0 END"));
    for expr in [result, value] {
        let explained = explained(&format!("SELECT {expr} AS v FROM typed"));
        let cases = explained.matches("CASE").count();
        // Two for each in the logical plan and in the pipelines, at the most.
        assert!((2 * depth..=4 * depth).contains(&cases), "{cases}");
    }
}

#[test]
fn what_would_grow_is_refused_with_its_place() {
    for (expr, then) in [
        ("({} BETWEEN b AND TRUE)", "b"),
        ("({} IN (b, i64 > 1))", "b"),
        ("CAST({} IN (1.5, 2.5) AS DOUBLE)", "f64"),
        ("CASE WHEN {} IS NOT NULL THEN i64 ELSE 1 END", "i64"),
        ("CASE WHEN {} > 1 THEN i64 ELSE 1 END", "i64"),
        ("IF({}, b, i64 > 1)", "b"),
        ("if({} > 1, i64, 1)", "i64"),
    ] {
        let text = nested(30, then, |x| expr.replace("{}", x));
        let message = error(&format!("SELECT {text} AS v FROM typed"));
        let named = "BETWEEN, IN, CASE and IF stand within each other so often";
        assert!(message.contains(named), "{message}");
        assert!(message.contains("query.sql:1:"), "{message}");
        let few = nested(5, then, |x| expr.replace("{}", x));
        plan(&format!("SELECT {few} AS v FROM typed"));
        // A level in each of thirty views.
        let mut views = format!("CREATE VIEW v0 AS SELECT b, i64, {then} AS x FROM typed;");
        for i in 1..30 {
            let column = expr.replace("{}", "x").replace("i64 ELSE", "x ELSE");
            let from = i - 1;
            views += &format!("CREATE VIEW v{i} AS SELECT b, i64, {column} AS x FROM v{from};");
        }
        let message = error(&format!("{views} SELECT x FROM v29"));
        assert!(
            message.contains("within each other so often") || message.contains("parts"),
            "{message}"
        );
    }
}

#[test]
fn a_mistake_deep_inside_is_found_in_one_reading() {
    for (call, found) in [
        ("CAST({} AS BIGINT)", "expected AS, found a"),
        ("TRY_CAST({} AS BIGINT)", "expected AS, found a"),
        ("EXTRACT(DAY FROM {})", "found a"),
        ("FLOOR({})", "expected ), found a"),
        ("CEIL({})", "expected ), found a"),
        ("SUBSTRING({})", "expected ), found a"),
        ("OVERLAY({} PLACING 'a' FROM 1)", "expected PLACING, found a"),
        ("TRIM({})", "expected ), found a"),
        ("CASE ({}) WHEN 1 THEN 1 END", "expected ), found a"),
        ("NOT ({})", "expected ), found a"),
        ("ABS({})", "found a"),
        ("({})", "expected ), found a"),
        ("i64 IN (({}))", "expected ), found a"),
    ] {
        let text = nested(60, "i64 a a", |x| call.replace("{}", x));
        let message = error(&format!("SELECT {text} FROM typed"));
        assert!(message.contains(found), "{message}");
        let line = message.lines().find(|line| line.contains("query.sql")).unwrap();
        let column: usize = line.rsplit(':').next().unwrap().parse().unwrap();
        let stands = "SELECT ".len() + text.find(" a a").unwrap() + 2;
        assert!(column == stands || column == stands + 2, "{column}, {stands}: {message}");
    }
    // Where sqlparser itself reads everything twice, reading is given up.
    for query in ["SELECT * FROM (({})) x", "SELECT * FROM (({}) x)"] {
        let text = nested(60, "SELECT a a a", |x| query.replace("{}", x));
        let message = error(&text);
        assert!(message.contains("query.sql:1:"), "{message}");
    }
    for call in ["POSITION({} IN 'a')", "CONVERT({}, BIGINT)", "INTERVAL ({}) DAY", "EXISTS ({})"] {
        let text = nested(60, "i64 a a", |x| call.replace("{}", x));
        error(&format!("SELECT {text} FROM typed"));
    }
}

#[test]
fn names_of_calls_are_columns_without_brackets() {
    let table = "CREATE TABLE n (floor BIGINT, extract BIGINT, substr STRING, trim STRING) \
                 WITH ('connector' = 'fake');";
    plan(&format!(
        "{table} SELECT floor + extract AS x, n.substr AS y, FLOOR(extract) AS z FROM n"
    ));
}

#[test]
fn long_scripts_are_read_once() {
    // A token list for each statement would be 1,500 times the whole text.
    let mut text = String::new();
    for i in 0..1_500 {
        text +=
            &format!("CREATE TABLE t{i} (a BIGINT, b AS a + {i}) WITH ('connector' = 'fake');\n");
        text += &format!("CREATE VIEW w{i} AS SELECT a + b + {i} AS c FROM t{i};\n");
    }
    plan(&format!("{text} SELECT c FROM w1499"));
}

#[test]
fn chains_of_views_end_somewhere() {
    let mut text = String::from("CREATE VIEW v0 AS SELECT i64 AS a FROM typed;");
    for i in 1..200 {
        text += &format!("CREATE VIEW v{i} AS SELECT a FROM v{};", i - 1);
    }
    plan(&format!("{text} SELECT a FROM v198"));
    let message = error(&format!("{text} CREATE VIEW w AS SELECT a FROM v199; SELECT a FROM w"));
    assert!(message.contains("'v199' is a view of a view and so on: more than 200"), "{message}");
    assert!(message.contains("^^^^"), "{message}");
}

#[test]
fn views_that_double_end_somewhere() {
    let mut text = String::from("CREATE VIEW v0 AS SELECT i64 AS a FROM typed;");
    for i in 1..=9 {
        let before = format!("SELECT a FROM v{}", i - 1);
        text += &format!("CREATE VIEW v{i} AS {before} UNION ALL {before};");
    }
    let tenth = "CREATE VIEW v10 AS SELECT a FROM v9 UNION ALL SELECT a FROM v9;";
    let message = error(&format!("{text}\n{tenth} SELECT 1"));
    assert!(message.contains("more than 1000 tables once its views are written out"), "{message}");
    assert!(message.contains("query.sql:2:"), "{message}");
    // So do those of WITH, also beside a view of that name.
    let mut with = String::from("WITH v0 AS (SELECT i64 AS a FROM typed)");
    for i in 1..=60 {
        let before = format!("SELECT a FROM v{}", i - 1);
        with += &format!(", v{i} AS ({before} UNION ALL {before})");
    }
    let message = error(&format!("{text}\n{with} SELECT a FROM v60"));
    assert!(message.contains("more than 1000 tables"), "{message}");
    // A WITH that is small hides a view that is not.
    let small = "WITH v9 AS (SELECT i64 AS a FROM typed) SELECT a FROM v9";
    graph(&format!("{text} {small} UNION ALL SELECT a FROM v9 UNION ALL SELECT a FROM v9"));
}

#[test]
fn a_list_of_millions_is_refused_where_it_gets_too_long() {
    let list = |values: usize| (0..values).map(|i| i.to_string()).collect::<Vec<_>>().join(",");
    let query = |list: &str| format!("SELECT i64 FROM typed WHERE i64 IN ({list})");
    let message = error(&query(&list(30_000)));
    assert!(message.contains("too many parts; at most 20000"), "{message}");
    assert!(message.contains("list fewer values"), "{message}");
    // Before it is read.
    let message = error(&query(&list(300_000)));
    assert!(message.contains("a list has more than 100000 items"), "{message}");
    assert!(message.contains("query.sql:1:") && message.contains('^'), "{message}");
    // What is no list is not counted.
    let commas = ",".repeat(200_000);
    plan(&format!("SELECT i64 /* ({commas} */ FROM typed -- ({commas}"));
    plan(&format!("SELECT i64 AS `({commas}` FROM typed WHERE s <> '({commas}'"));
}

#[test]
fn long_chains_and_deep_calls_are_planned() {
    let many = |what: &str, times: usize, between: &str| vec![what; times].join(between);
    for expr in [
        format!("CONCAT({})", many("s", 1_000, ", ")),
        many("i64", 900, " + "),
        many("f64", 900, " * "),
        many("s", 900, " || "),
        nested(200, "i64", |x| format!("COALESCE({x}, i32)")),
        nested(200, "i64", |x| format!("ABS({x})")),
        nested(200, "s", |x| format!("UPPER({x})")),
        nested(100, "s", |x| format!("CAST(CAST({x} AS BIGINT) AS STRING)")),
    ] {
        plan(&format!("SELECT {expr} AS v FROM typed"));
    }
}

/// Calls so deep that their names are shortened are told apart by all of their parts.
#[test]
fn deep_calls_that_differ_in_one_part_are_two() {
    let deep = nested(200, "i64", |x| format!("COALESCE({x}, i32)"));
    let sums = format!("SUM(COALESCE({deep}, 1)) AS a, SUM(COALESCE({deep}, 2)) AS b");
    let plan = plan(&format!("SELECT {sums} FROM typed"));
    assert_eq!(aggregate(&plan).aggregates.len(), 2);
}

/// `c0, c1, …` with something around each.
fn listed(columns: usize, item: impl Fn(usize) -> String) -> String {
    (0..columns).map(item).collect::<Vec<_>>().join(", ")
}

#[test]
fn thousands_of_columns_are_planned_in_steps_that_grow_with_their_number() {
    const COLUMNS: usize = 4_000;
    let declared = listed(COLUMNS, |i| format!("c{i} BIGINT"));
    let table = format!(
        "CREATE TABLE wide (k STRING, {declared}, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) \
         WITH ('connector' = 'fake');"
    );
    let names = listed(COLUMNS, |i| format!("c{i}"));
    let computed = listed(COLUMNS, |i| format!("c{i} * 2 AS d{i}"));
    let sums = listed(COLUMNS, |i| format!("SUM(c{i}) AS s{i}"));
    let tumble = "TABLE(TUMBLE(TABLE wide, DESCRIPTOR(ts), INTERVAL '1' MINUTE))";
    for (query, columns) in [
        ("SELECT * FROM wide LIMIT 3".to_string(), COLUMNS + 2),
        (format!("SELECT {names} FROM wide WHERE c1 > 0"), COLUMNS),
        (format!("SELECT {computed} FROM wide AS w WHERE w.c1 > 0 LIMIT 3"), COLUMNS),
        (format!("SELECT {sums} FROM wide HAVING SUM(c7) > 1"), COLUMNS),
        (
            format!(
                "SELECT window_start, k, {sums} FROM {tumble} \
                 GROUP BY k, window_start, window_end HAVING COUNT(*) > 1 AND MAX(c3999) > 1"
            ),
            COLUMNS + 2,
        ),
    ] {
        let planned = plan(&format!("{table} {query}"));
        assert_eq!(planned.output.fields().len(), columns);
    }
    let message = error(&format!("{table} SELECT {names}, c4000 FROM wide"));
    assert!(message.contains("there is no column 'c4000'"), "{message}");
    let message = error(&format!("{table} SELECT {sums}, c3 FROM wide GROUP BY k"));
    assert!(message.contains("'c3'"), "{message}");
}

/// A query within another is not planned in pieces, and dissolves.
#[test]
fn what_is_planned_in_pieces_is_what_is_planned_as_a_whole() {
    let declared = listed(300, |i| format!("c{i} BIGINT"));
    let table = format!("CREATE TABLE wide ({declared}) WITH ('connector' = 'fake');");
    let pipelines = |query: &str| {
        let explained = explained(&format!("{table} {query}"));
        explained[explained.find("first pipeline").unwrap()..].to_string()
    };
    for (item, rest) in [
        ("c{}", "WHERE c299 > 1 LIMIT 3"),
        ("c{} + 1", ""),
        ("wide.c{} AS d{}", "WHERE c0 = 1"),
        ("SUM(c{}) / COUNT(*)", ""),
        ("CAST(c{} AS STRING) AS s{}", ""),
        ("SUM(c{}), MAX(c{} + c0) FILTER (WHERE c299 > 2)", "GROUP BY c299 HAVING SUM(c0) > 3"),
    ] {
        let items = listed(300, |i| item.replace("{}", &i.to_string()));
        let query = format!("SELECT {items} FROM wide {rest}");
        let pieces = pipelines(&query);
        assert!(pieces.contains("c298"), "{pieces}");
        assert_eq!(pieces, pipelines(&format!("SELECT * FROM ({query})")));
    }
    // Names that collide, and an alias that is grouped by, across the pieces.
    let names = listed(200, |i| format!("c{i}"));
    plan(&format!("{table} SELECT {names}, c0 FROM wide"));
    plan(&format!("{table} SELECT {names}, CAST(c0 AS BIGINT) FROM wide"));
    let sums = listed(200, |i| format!("SUM(c{i})"));
    plan(&format!("{table} SELECT {sums}, c250 + 1 AS k FROM wide GROUP BY k"));
    plan(&format!("{table} SELECT {sums}, c250 + 1 AS k FROM wide GROUP BY 201"));
    plan(&format!("{table} SELECT {sums}, SUM(c0) + SUM(c199) FROM wide"));
}
