//! Scalar functions of the program's own.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Int64Type};
use arrow::util::pretty::pretty_format_batches;
use millstream::{Failure, Session};

use super::NUMBERS;

/// `HALF`: of odd numbers there is none. `SHOUT`: a text in capitals, with a mark.
fn session() -> Session {
    let mut session = Session::new(".");
    let half = |arguments: &[ArrayRef]| {
        let half = |n: i64| if n % 2 == 0 { Ok(n / 2) } else { Err(format!("{n} is odd")) };
        let numbers = arguments[0].as_primitive::<Int64Type>();
        let halves: Result<Int64Array, String> =
            numbers.iter().map(|n| n.map(half).transpose()).collect();
        Ok(Arc::new(halves?) as ArrayRef)
    };
    session.register_function("HALF", &[DataType::Int64], DataType::Int64, half).unwrap();
    let shout = |arguments: &[ArrayRef]| {
        let (texts, times) = (arguments[0].as_string::<i32>(), arguments[1].as_primitive());
        let marks = |n: i64| "!".repeat(n as usize);
        let both = texts.iter().zip(times.iter() as arrow::array::PrimitiveIter<'_, Int64Type>);
        let loud = both.map(|(text, n)| Some(text?.to_uppercase() + &marks(n?)));
        Ok(Arc::new(loud.collect::<StringArray>()) as ArrayRef)
    };
    let types = [DataType::Utf8, DataType::Int64];
    session.register_function("shout", &types, DataType::Utf8, shout).unwrap();
    session
}

fn text(rows: &[RecordBatch]) -> String {
    let text = pretty_format_batches(rows).unwrap().to_string();
    let lines = text.lines().filter(|line| line.starts_with('|')).skip(1);
    let cells =
        lines.map(|line| line.replace('|', " ").split_whitespace().collect::<Vec<_>>().join(" "));
    cells.collect::<Vec<_>>().join(", ")
}

fn rows(sql: &str) -> String {
    text(&session().collect(&format!("{NUMBERS} {sql}")).unwrap())
}

fn error(sql: &str) -> String {
    match session().collect(&format!("{NUMBERS}\n{sql}")).unwrap_err() {
        Failure::Sql(error) => error.render(),
        other => other.to_string(),
    }
}

#[test]
fn a_function_stands_wherever_an_expression_does() {
    assert_eq!(rows("SELECT half(n) FROM numbers WHERE n % 2 = 0 AND n < 7"), "1, 2, 3");
    assert_eq!(rows("SELECT n FROM numbers WHERE HALF(n * 2) = 7"), "7");
    let grouped = "SELECT HALF(n - n % 2) AS h, COUNT(*) FROM numbers WHERE n < 6
                   GROUP BY HALF(n - n % 2) HAVING HALF(SUM(n) * 2) > 1";
    assert_eq!(rows(grouped), "1 2, 2 2");
    let view = "CREATE VIEW v AS SELECT HALF(n * 4) AS d FROM numbers;
                SELECT MAX(HALF(d)), SUM(d) FROM v WHERE n_of(d) < 5";
    let declared = "CREATE FUNCTION n_of(d BIGINT) RETURNS BIGINT RETURN HALF(d);";
    assert_eq!(rows(&format!("{declared} {view}")), "4 20");
    // Texts, constants and NULLs; an INT is cast.
    assert_eq!(
        rows("SELECT SHOUT('no', 2), HALF(CAST(8 AS INT)) FROM numbers WHERE n = 1"),
        "NO!! 4"
    );
    let null = "SELECT SHOUT(CAST(NULL AS STRING), n) IS NULL, HALF(NULLIF(n, 1)) IS NULL
                FROM numbers WHERE n = 1";
    assert_eq!(rows(null), "true true");
    let fired = "SELECT SHOUT('x', COUNT(*)) FROM numbers WHERE n < 4";
    assert_eq!(rows(fired), "X!!!");
}

#[test]
fn an_error_of_a_function_shows_its_place() {
    let said = error("SELECT n,\n  1 + HALF(n) AS h FROM numbers WHERE n = 7");
    assert!(said.contains("HALF: 7 is odd"), "{said}");
    assert!(said.contains("HALF(n) AS h") && said.contains("^^^^^^^"), "{said}");
}

#[test]
fn wrong_calls_are_refused_at_their_place() {
    for (sql, words) in [
        ("SELECT HALF(n, n) FROM numbers", "HALF"),
        ("SELECT HALF('x' || 'y') FROM numbers", "HALF"),
        ("SELECT HALV(n) FROM numbers", "did you mean HALF?"),
    ] {
        let said = error(sql);
        assert!(said.contains(words) && said.contains("^^^^"), "{said}");
    }
}

#[test]
fn a_result_that_was_not_promised_is_refused() {
    let mut session = session();
    let shorter = |_: &[ArrayRef]| Ok(Arc::new(Int64Array::from(vec![1, 2])) as ArrayRef);
    session.register_function("SHORTER", &[DataType::Int64], DataType::Int64, shorter).unwrap();
    let other = |texts: &[ArrayRef]| Ok(texts[0].clone());
    session.register_function("OTHER", &[DataType::Utf8], DataType::Int64, other).unwrap();
    for (call, words) in [
        (
            "SHORTER(n)",
            "SHORTER gave 2 values of type BIGINT, where 1 of type BIGINT were expected",
        ),
        ("OTHER('x')", "OTHER gave 1 values of type STRING, where 1 of type BIGINT were expected"),
    ] {
        let sql = format!("{NUMBERS} SELECT {call} FROM numbers WHERE n <= 3");
        let said = session.clone().collect(&sql).unwrap_err().to_string();
        assert!(said.contains(words), "{said}");
    }
}

#[test]
fn a_function_is_registered_under_a_free_name_with_types_of_columns() {
    let mut session = session();
    session
        .collect("CREATE FUNCTION twice(x BIGINT) RETURNS BIGINT RETURN x * 2; SELECT 1")
        .unwrap();
    let mut refused = |name: &str, arguments: &[DataType], returns: DataType| {
        let same = |arguments: &[ArrayRef]| Ok(arguments[0].clone());
        session.register_function(name, arguments, returns, same).unwrap_err().to_string()
    };
    let of = |data_type: DataType| [data_type];
    for (name, arguments, returns, words) in [
        ("ABS", of(DataType::Int64), DataType::Int64, "'ABS' cannot be registered: SQL has"),
        ("sum", of(DataType::Int64), DataType::Int64, "SQL has a function of this name"),
        ("Twice", of(DataType::Int64), DataType::Int64, "CREATE FUNCTION has declared"),
        ("two words", of(DataType::Int64), DataType::Int64, "a word of letters"),
        ("big", of(DataType::LargeUtf8), DataType::Int64, "of type Utf8, not LargeUtf8"),
        ("big", of(DataType::Utf8), DataType::BinaryView, "of type Binary, not BinaryView"),
    ] {
        let said = refused(name, &arguments, returns);
        assert!(said.contains(words), "{said}");
    }
    assert!(refused("none", &[], DataType::Int64).contains("an argument or more"));
    // One's own is replaced, and CREATE FUNCTION does not hide it.
    let same = |arguments: &[ArrayRef]| Ok(arguments[0].clone());
    session.register_function("half", &[DataType::Int64], DataType::Int64, same).unwrap();
    let sql = format!("{NUMBERS} SELECT HALF(n) FROM numbers WHERE n = 3");
    assert_eq!(text(&session.collect(&sql).unwrap()), "3");
    let hides = session
        .collect("CREATE FUNCTION half(x BIGINT) RETURNS BIGINT RETURN x; SELECT 1")
        .unwrap_err();
    assert!(hides.to_string().contains("there is a function half already"), "{hides}");
}
