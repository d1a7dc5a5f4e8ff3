//! Tests of operator precedence, by a table: every pair of operators is parsed without brackets and
//! with the brackets that the table says, and must give the same tree.
//!
//! The numbers are Calcite's, which reads Flink's SQL (`SqlStdOperatorTable`, `SqlLikeOperator`,
//! `SqlBetweenOperator`, `SqlInOperator`); the SQL standard's grammar gives the same order where it
//! lets two operators stand beside each other without brackets at all.

use datafusion_sql::sqlparser::ast::Expr;

use crate::syntax::dialect::MillstreamDialect;
use crate::syntax::prelude::*;

const PREDICATE: u8 = 32;

/// Operators between two operands: `a op b`.
const BETWEEN_TWO: &[(&str, u8)] = &[
    ("OR", 22),
    ("AND", 24),
    ("=", 30),
    ("<>", 30),
    ("!=", 30),
    ("<", 30),
    ("<=", 30),
    (">", 30),
    (">=", 30),
    ("IS DISTINCT FROM", 30),
    ("IS NOT DISTINCT FROM", 30),
    ("LIKE", PREDICATE),
    ("NOT LIKE", PREDICATE),
    ("SIMILAR TO", PREDICATE),
    ("NOT SIMILAR TO", PREDICATE),
    ("BETWEEN low AND", PREDICATE),
    ("NOT BETWEEN low AND", PREDICATE),
    ("+", 40),
    ("-", 40),
    ("*", 60),
    ("/", 60),
    ("%", 60),
    ("||", 60),
];

/// Operators after their operand: `a op`.
const AFTER: &[(&str, u8)] = &[
    ("IS NULL", 28),
    ("IS NOT NULL", 28),
    ("IS TRUE", 28),
    ("IS NOT TRUE", 28),
    ("IS FALSE", 28),
    ("IS NOT FALSE", 28),
    ("IS UNKNOWN", 28),
    ("IS NOT UNKNOWN", 28),
    ("IN (1, 2)", PREDICATE),
    ("NOT IN (1, 2)", PREDICATE),
    // The standard's: it belongs to the value right before it.
    ("AT TIME ZONE 'UTC'", 90),
    ("::BIGINT", 94),
];

/// Operators before their operand: `op a`.
const BEFORE: &[(&str, u8)] = &[("NOT", 26), ("-", 80), ("+", 80)];

fn tree(text: &str) -> Expr {
    struct Brackets;
    impl VisitorMut for Brackets {
        type Break = ();
        fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
            if let Expr::Nested(inner) = expr {
                *expr = (**inner).clone();
            }
            Continue(())
        }
    }
    let dialect = MillstreamDialect::default();
    let parser = Parser::new(&dialect).try_with_sql(text);
    let parsed = parser.and_then(|mut parser| {
        let expr = parser.parse_expr()?;
        let end = parser.next_token();
        assert_eq!(end.token.to_string(), "EOF", "{text}: left over");
        Ok(expr)
    });
    let mut expr = parsed.unwrap_or_else(|e| panic!("{text}: {e}"));
    let _ = expr.walk_mut(&mut Brackets);
    expr
}

#[track_caller]
fn reads(plain: &str, bracketed: &str) {
    let (ours, wanted) = (tree(plain), tree(bracketed));
    assert_eq!(ours, wanted, "\n{plain}\nis not\n{bracketed}\nbut\n{ours}");
}

#[test]
fn operators_between_two_operands_bind_as_the_table_says() {
    for (first, one) in BETWEEN_TWO {
        for (second, two) in BETWEEN_TWO {
            // `a LIKE b LIKE c` means nothing: a condition is no text.
            if (*one, *two) == (PREDICATE, PREDICATE) {
                continue;
            }
            let plain = format!("a {first} b {second} c");
            match one >= two {
                true => reads(&plain, &format!("(a {first} b) {second} c")),
                false => reads(&plain, &format!("a {first} (b {second} c)")),
            }
        }
    }
}

#[test]
fn the_first_bound_of_between_takes_what_binds_more_tightly() {
    for (op, _) in BETWEEN_TWO.iter().filter(|(_, strength)| *strength > PREDICATE) {
        let plain = format!("a BETWEEN b {op} c AND d AND e");
        reads(&plain, &format!("(a BETWEEN (b {op} c) AND d) AND e"));
    }
}

#[test]
fn operators_after_their_operand_bind_as_the_table_says() {
    for (between, one) in BETWEEN_TWO {
        for (after, two) in AFTER {
            if (*one, *two) != (PREDICATE, PREDICATE) {
                let plain = format!("a {between} b {after}");
                match one >= two {
                    true => reads(&plain, &format!("(a {between} b) {after}")),
                    false => reads(&plain, &format!("a {between} (b {after})")),
                }
            }
            reads(&format!("a {after} {between} b"), &format!("(a {after}) {between} b"));
        }
    }
}

#[test]
fn operators_before_their_operand_bind_as_the_table_says() {
    for (before, one) in BEFORE {
        for (between, two) in BETWEEN_TWO {
            let plain = format!("{before} a {between} b");
            match one > two {
                true => reads(&plain, &format!("({before} a) {between} b")),
                false => reads(&plain, &format!("{before} (a {between} b)")),
            }
        }
        for (after, two) in AFTER {
            let plain = format!("{before} a {after}");
            match one > two {
                true => reads(&plain, &format!("({before} a) {after}")),
                false => reads(&plain, &format!("{before} (a {after})")),
            }
        }
    }
    reads("NOT NOT a AND b", "(NOT (NOT a)) AND b");
    reads("a AND NOT b = c OR d", "(a AND (NOT (b = c))) OR d");
    reads("a - -b - c", "(a - (-b)) - c");
    reads("a = -b", "a = (-b)");
}

#[test]
fn intervals_typed_constants_and_collations_are_operands() {
    reads(
        "t + INTERVAL '1' DAY * 2 > u - INTERVAL '5' SECOND AND b",
        "((t + (INTERVAL '1' DAY * 2)) > (u - INTERVAL '5' SECOND)) AND b",
    );
    reads("- INTERVAL '1' DAY + t", "(- INTERVAL '1' DAY) + t");
    reads(
        "t - INTERVAL '1' DAY BETWEEN u AND v + INTERVAL '1' HOUR",
        "(t - INTERVAL '1' DAY) BETWEEN u AND (v + INTERVAL '1' HOUR)",
    );
    reads("t > DATE '2024-01-01' AND b", "(t > (DATE '2024-01-01')) AND b");
    reads("a || b COLLATE c = d", "(a || (b COLLATE c)) = d");
    reads("a::INT + b::BIGINT * 2", "(a::INT) + ((b::BIGINT) * 2)");
    reads("t + u AT TIME ZONE 'UTC' > v", "(t + (u AT TIME ZONE 'UTC')) > v");
}

#[test]
fn a_condition_ends_where_it_is_escaped_or_distinguished() {
    reads("a LIKE b ESCAPE '!' AND c", "(a LIKE b ESCAPE '!') AND c");
    reads("a LIKE b || '%' ESCAPE '!' = c", "(a LIKE (b || '%') ESCAPE '!') = c");
    reads("a SIMILAR TO b ESCAPE '!' OR c", "(a SIMILAR TO b ESCAPE '!') OR c");
    reads("f IS DISTINCT FROM TRUE AND a > 5", "(f IS DISTINCT FROM TRUE) AND (a > 5)");
    reads("a IS NOT DISTINCT FROM b + 1 OR c", "(a IS NOT DISTINCT FROM (b + 1)) OR c");
    reads("NOT a IS DISTINCT FROM b IS TRUE", "NOT ((a IS DISTINCT FROM b) IS TRUE)");
    reads("a = b BETWEEN c AND d", "a = (b BETWEEN c AND d)");
    reads("s LIKE 'a' = TRUE", "(s LIKE 'a') = TRUE");
}
