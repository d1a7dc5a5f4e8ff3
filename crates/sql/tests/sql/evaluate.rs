//! Tests of the values of expressions, row by row, against answers worked out by hand.

use std::sync::Arc;

use arrow::array::*;
use arrow::util::display::array_value_to_string;
use millstream_sql::Outcome;

use crate::common::*;

const TABLE: &str = "CREATE TABLE e (
    a BIGINT, b INT, x DOUBLE, d DECIMAL(10, 2), s STRING, t TIMESTAMP(3), f BOOLEAN,
    WATERMARK FOR t AS t
) WITH ('connector' = 'fake');";

/// Three rows; the second is all NULL.
fn rows() -> RecordBatch {
    let d: Decimal128Array = [Some(125), None, Some(-300)].into_iter().collect();
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("a", Arc::new(Int64Array::from(vec![Some(7), None, Some(-7)]))),
        ("b", Arc::new(Int32Array::from(vec![Some(2), None, Some(0)]))),
        ("x", Arc::new(Float64Array::from(vec![Some(1.5), None, Some(-0.5)]))),
        ("d", Arc::new(d.with_precision_and_scale(10, 2).unwrap())),
        ("s", Arc::new(StringArray::from(vec![Some("a,b,c"), None, Some("")]))),
        // 2024-02-29 13:14:15.678, and a millisecond before 1970.
        (
            "t",
            Arc::new(TimestampMillisecondArray::from(vec![
                Some(1_709_212_455_678),
                None,
                Some(-1),
            ])),
        ),
        ("f", Arc::new(BooleanArray::from(vec![Some(true), None, Some(false)]))),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(n, c)| (n, c, true)))
        .unwrap()
}

/// Runs the stateless query `text` over [`rows`].
fn run(text: &str) -> Result<RecordBatch, String> {
    let query = match execute(&mut empty_session(), &format!("{TABLE}{text}")) {
        Ok(Outcome::Query(planned)) => Query::new(&planned.plan),
        Ok(other) => panic!("{other:?}"),
        Err(e) => return Err(e.render()),
    };
    assert!(query.derived.is_empty());
    let batch = rows().project(&query.projection).unwrap();
    query.run(batch).map_err(|e| e.to_string())
}

#[track_caller]
fn gives(expr: &str, expected: [&str; 3]) {
    let batch =
        run(&format!("SELECT {expr} AS v FROM e")).unwrap_or_else(|e| panic!("{expr}: {e}"));
    assert_eq!(shown(&batch), expected, "{expr}");
}

#[track_caller]
fn fails(expr: &str, parts: &[&str]) {
    let text = match run(&format!("SELECT {expr} AS v FROM e")) {
        Ok(batch) => panic!("{expr} gave {:?}", shown(&batch)),
        Err(text) => text,
    };
    for part in parts {
        assert!(text.contains(part), "{expr}: {text}");
    }
}

#[test]
fn what_is_chosen_among_is_evaluated_where_it_is_needed() {
    gives("COALESCE(a, 1)", ["7", "1", "-7"]);
    gives("COALESCE(NULL, a, NULL)", ["7", "NULL", "-7"]);
    gives("IFNULL(a, 1)", ["7", "1", "-7"]);
    gives("NVL2(a, 1, 2)", ["1", "2", "1"]);
    gives("NVL2(NULL, 1, a)", ["7", "NULL", "-7"]);
    // Where `a` is -7 the division would fail.
    gives("COALESCE(a, 10 / (a + 7), 5)", ["7", "5", "-7"]);
    gives("NVL2(NULLIF(a, -7), 10 / (a + 7), 1)", ["0", "1", "1"]);
    gives("COALESCE(1, 1 / 0)", ["1", "1", "1"]);
    fails("COALESCE(NULLIF(a, -7), 10 / (a + 7))", &["division by zero"]);
}

#[test]
fn arithmetic_truncates_towards_zero() {
    gives("a + 1", ["8", "NULL", "-6"]);
    gives("a / 2", ["3", "NULL", "-3"]);
    gives("a % 2", ["1", "NULL", "-1"]);
    gives("MOD(a, 4)", ["3", "NULL", "-3"]);
    gives("-a", ["-7", "NULL", "7"]);
    gives("a * x", ["10.5", "NULL", "3.5"]);
    gives("d + d", ["2.50", "NULL", "-6.00"]);
    gives("d * 2", ["2.50", "NULL", "-6.00"]);
    gives("10 / NULLIF(b, 0)", ["5", "NULL", "NULL"]);
}

#[test]
fn overflow_and_division_by_zero_are_errors_that_name_the_expression() {
    fails("a / b", &["division by zero", "a / b", "NULLIF"]);
    fails("a % b", &["division by zero"]);
    fails("a + 9223372036854775807", &["a + 9223372036854775807", "does not fit BIGINT"]);
    fails("a - 9223372036854775807 - 9", &["does not fit BIGINT"]);
    fails("a * 9223372036854775807", &["does not fit BIGINT"]);
    fails("CAST(a * 100 AS TINYINT)", &["CAST(a * 100 AS TINYINT)", "TINYINT"]);
    fails("CAST(s AS INT)", &["CAST(s AS INT)", "INT", "TRY_CAST"]);
    gives("TRY_CAST(s AS INT)", ["NULL", "NULL", "NULL"]);
}

#[test]
fn and_or_stop_where_the_row_is_decided() {
    gives("b <> 0 AND a / b > 1", ["true", "NULL", "false"]);
    gives("b = 0 OR a / b > 1", ["true", "NULL", "true"]);
    gives("CASE WHEN b <> 0 THEN a / b ELSE 0 END", ["3", "0", "0"]);
    let batch = run("SELECT a FROM (SELECT * FROM e WHERE b <> 0) WHERE 10 / b = 5").unwrap();
    assert_eq!(shown(&batch), ["7"]);
    let batch = run("SELECT 10 / b AS v FROM (SELECT * FROM e WHERE b > 0)").unwrap();
    assert_eq!(shown(&batch), ["5"]);
}

#[test]
fn conditions_know_three_values() {
    gives("f AND NULL", ["NULL", "NULL", "false"]);
    gives("f OR NULL", ["true", "NULL", "NULL"]);
    gives("NOT f", ["false", "NULL", "true"]);
    gives("a IN (7, NULL)", ["true", "NULL", "NULL"]);
    gives("a NOT IN (7, NULL)", ["false", "NULL", "NULL"]);
    gives("a BETWEEN -7 AND 0", ["false", "NULL", "true"]);
    gives("f IS NOT TRUE", ["false", "true", "true"]);
    gives("a IS DISTINCT FROM 7", ["false", "true", "true"]);
    gives("f IS DISTINCT FROM TRUE AND a > 5", ["false", "NULL", "false"]);
    gives("d > 1.2", ["true", "NULL", "false"]);
    gives("s LIKE 'a%'", ["true", "NULL", "false"]);
}

#[test]
fn functions_mean_what_flink_says() {
    gives("CONCAT(s, '-', 'x')", ["a,b,c-x", "NULL", "-x"]);
    gives("CONCAT_WS('-', s, 'x')", ["a,b,c-x", "x", "-x"]);
    gives("GREATEST(a, 3)", ["7", "NULL", "3"]);
    gives("LEAST(a, 3)", ["3", "NULL", "-7"]);
    gives("LOG(EXP(x))", ["1.5", "NULL", "-0.5"]);
    gives("REGEXP_REPLACE(s, '[abc]', 'x')", ["x,x,x", "NULL", ""]);
    gives("REGEXP_EXTRACT(s, '(b),(.)', 2)", ["c", "NULL", "NULL"]);
    gives("SPLIT_INDEX(s, ',', 1)", ["b", "NULL", "NULL"]);
    gives("SPLIT_INDEX(s, ',', 3)", ["NULL", "NULL", "NULL"]);
    gives("IF(a > 0, 'up', 'down')", ["up", "down", "down"]);
    gives("COALESCE(s, 'none')", ["a,b,c", "none", ""]);
    gives("CHAR_LENGTH(s)", ["5", "NULL", "0"]);
    gives("UPPER(s) || '!'", ["A,B,C!", "NULL", "!"]);
    gives("SUBSTRING(s FROM 3 FOR 1)", ["b", "NULL", ""]);
    gives("POSITION('b' IN s)", ["3", "NULL", "0"]);
    gives("TRIM(BOTH 'a' FROM s)", [",b,c", "NULL", ""]);
    gives("ABS(a)", ["7", "NULL", "7"]);
    gives("SIGN(x)", ["1.0", "NULL", "-1.0"]);
    gives("a NOT IN (1, CASE WHEN f THEN 3 ELSE 2 END, 5)", ["true", "NULL", "true"]);
    gives("x + 0.5 IN (-0.0, 3.0, 4.0, 5.0, 6.0)", ["false", "NULL", "true"]);
    gives("LOCATE('b', s)", ["3", "NULL", "0"]);
}

#[test]
fn dates_and_times() {
    gives("YEAR(t)", ["2024", "NULL", "1969"]);
    gives("HOUR(t)", ["13", "NULL", "23"]);
    gives("EXTRACT(SECOND FROM t)", ["15", "NULL", "59"]);
    // 2024-02-29 was a Thursday, 1969-12-31 a Wednesday; Sunday is 1.
    gives("DAYOFWEEK(t)", ["5", "NULL", "4"]);
    gives("DATE_FORMAT(t, 'yyyy/MM/dd HH:mm')", ["2024/02/29 13:14", "NULL", "1969/12/31 23:59"]);
    gives("CAST(t AS DATE)", ["2024-02-29", "NULL", "1969-12-31"]);
    gives("t + INTERVAL '1' DAY", ["2024-03-01T13:14:15.678", "NULL", "1970-01-01T23:59:59.999"]);
    gives("t < TIMESTAMP '2024-01-01 00:00:00'", ["false", "NULL", "true"]);
    gives("t < TIMESTAMP '9999-12-31 23:59:59'", ["true", "NULL", "true"]);
    gives("FROM_UNIXTIME(a)", ["1970-01-01 00:00:07", "NULL", "1969-12-31 23:59:53"]);
    gives(
        "TO_TIMESTAMP('2024-02-29 01:02', 'yyyy-MM-dd HH:mm')",
        ["2024-02-29T01:02:00", "2024-02-29T01:02:00", "2024-02-29T01:02:00"],
    );
}

#[test]
fn a_window_without_grouping_adds_its_columns() {
    // The row without a time is in no window. -1 ms lies in the window before 1970.
    let text = "SELECT window_start, window_end, window_time, a
                FROM TABLE(TUMBLE(TABLE e, DESCRIPTOR(t), INTERVAL '10' SECOND))";
    let batch = run(text).unwrap();
    assert_eq!(shown(&batch), ["2024-02-29T13:14:10", "1969-12-31T23:59:50"]);
    let time = array_value_to_string(batch.column(2), 1).unwrap();
    assert_eq!(time, "1969-12-31T23:59:59.999");
    let late = run(&format!("{text} WHERE window_end <= TIMESTAMP '1970-01-01 00:00:00'")).unwrap();
    assert_eq!(shown(&late), ["1969-12-31T23:59:50"]);
}

#[test]
fn decimals_stay_exact_beside_integers_and_become_doubles_beside_doubles() {
    gives("d / 3", ["0.4166666666667", "NULL", "-1.0000000000000"]);
    gives("d / 2.5", ["0.500000", "NULL", "-1.200000"]);
    gives("a / 2.0", ["3.500000", "NULL", "-3.500000"]);
    gives("d % 0.7", ["0.55", "NULL", "-0.20"]);
    gives("MOD(d, 0.7)", ["0.55", "NULL", "-0.20"]);
    gives("d * x", ["1.875", "NULL", "1.5"]);
    gives("x * 1.5 - 1", ["1.25", "NULL", "-1.75"]);
    gives("x > 0.1", ["true", "NULL", "false"]);
    gives("x IN (1.5, 2)", ["true", "NULL", "false"]);
    gives("x BETWEEN -0.5 AND 1.25", ["false", "NULL", "true"]);
    gives("CASE x WHEN 1.5 THEN 1 ELSE 0 END", ["1", "0", "0"]);
    gives("CASE WHEN f THEN 0.1 ELSE x END + 0.2", ["0.30000000000000004", "NULL", "-0.3"]);
    gives("CASE WHEN f THEN d ELSE x END / 2", ["0.625", "NULL", "-0.25"]);
    gives("NULLIF(x, 1.5)", ["NULL", "NULL", "-0.5"]);
    gives("CAST(x AS FLOAT) * 0.1", ["0.15000000000000002", "NULL", "-0.05"]);
}

#[test]
fn decimals_that_do_not_fit_are_errors_that_name_the_expression() {
    fails("d / (d - d)", &["division by zero", "d / (d - d)", "NULLIF"]);
    fails("d % (d - d)", &["division by zero", "d % (d - d)"]);
    let most = "9".repeat(38);
    fails(&format!("d + {most}"), &["does not fit DECIMAL(38, 2)", "d + 9999"]);
    fails(&format!("d * d * {most}"), &["does not fit DECIMAL(38, 4)", "d * d * 9999"]);
    let given = format!("CASE WHEN f THEN {most} END");
    fails(&format!("{given} / 0.1"), &["does not fit DECIMAL(38, 6)", "cast to DOUBLE"]);
    fails("CAST(a * 1.5 AS DECIMAL(2, 1))", &["10.5", "DECIMAL(2, 1)"]);
    fails(&format!("{most} * 10"), &["does not fit DECIMAL(38, 0)"]);
    fails(&format!("d + {most}1"), &["39 digits", "at most 38", "1.5E0"]);
    fails("x + 1E400", &["1E400 does not fit DOUBLE"]);
}

#[test]
fn whole_numbers_beside_a_decimal_have_no_digits_after_the_point() {
    gives("CEIL(CAST(9.99 AS DECIMAL(3, 2)))", ["10"; 3]);
    gives("CEILING(9.99)", ["10"; 3]);
    gives("FLOOR(CAST(-9.99 AS DECIMAL(3, 2)))", ["-10"; 3]);
    gives("CEIL(d * 80000000.4)", ["100000001", "NULL", "-240000001"]);
    gives("FLOOR(CAST(0.125 * a AS DECIMAL(3, 3)))", ["0", "NULL", "-1"]);
    gives("FLOOR(x)", ["1.0", "NULL", "-1.0"]);
}

#[test]
fn times_and_counts_out_of_range_are_errors_that_name_the_call() {
    let (range, help) = ("the time is out of range", "from the year -262,143 to 262,142");
    let call = "TO_TIMESTAMP_LTZ(a * 9223372036854775, 0)";
    fails(call, &[range, help, call]);
    fails("CAST(TO_TIMESTAMP_MILLIS(a * 1000000000000000000) AS DATE)", &[range, help]);
    fails("CEIL(TIME '23:59:31' TO MINUTE)", &["its CEIL is 24:00:00, which does not fit TIME(0)"]);
    fails("INSTR(s, 'a', 1, a - 7)", &["the fourth argument of INSTR counts from 1, and is 0"]);
    gives("INSTR(s, ',', -1, 2)", ["2", "NULL", "0"]);
}

#[test]
fn trim_cuts_off_blanks_where_it_is_told() {
    for (side, trimmed) in [("BOTH", "ab"), ("LEADING", "ab  "), ("trailing", "  ab")] {
        gives(&format!("'|' || TRIM({side} FROM '  ab  ') || '|'"), [&*format!("|{trimmed}|"); 3]);
        gives(&format!("TRIM({side} 'x' FROM 'ab')"), ["ab"; 3]);
    }
    gives("TRIM(BOTH FROM s)", ["a,b,c", "NULL", ""]);
}
