//! Tests that DataFusion's expression simplifier, the only optimiser rule in use, changes no value
//! as it is called here: random expressions are evaluated with and without it, over rows with
//! NULLs, edge values and zeros. Conditions are evaluated as filters, too.

use arrow::array::*;
use chrono::DateTime;
use datafusion_optimizer::simplify_expressions::ExprSimplifier;
use datafusion_sql::planner::{PlannerContext, SqlToRel};

use crate::expr::scalars::{as_meant, dates_as_times};
use crate::expr::{evaluate::compile, simplified::simplified};
use crate::names::catalog::{Catalog, FileTables, INPUT};
use crate::stages::condition;
use crate::stages::functions::{Context, Functions};
use crate::syntax::prelude::*;
use crate::syntax::{dialect::MillstreamDialect, dialect::parser_options};

/// Columns `a`, `b` BIGINT, `i` INT, `x` DOUBLE, `d` DECIMAL(6, 2), `s` STRING, `p`, `q` BOOLEAN.
fn batch() -> RecordBatch {
    let d = |v: &[Option<i128>]| {
        let array: Decimal128Array = v.iter().copied().collect();
        Arc::new(array.with_precision_and_scale(6, 2).unwrap()) as ArrayRef
    };
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("a", Arc::new(Int64Array::from(vec![Some(0), None, Some(-3), Some(5), Some(5), None]))),
        ("b", Arc::new(Int64Array::from(vec![Some(0), Some(2), None, Some(5), Some(-1), None]))),
        ("i", Arc::new(Int32Array::from(vec![Some(1), Some(-2), Some(7), None, Some(0), None]))),
        (
            "x",
            Arc::new(Float64Array::from(vec![
                Some(0.5),
                Some(-0.0),
                None,
                Some(f64::NAN),
                Some(1e300),
                None,
            ])),
        ),
        ("d", d(&[Some(150), Some(-25), None, Some(0), Some(999_999), None])),
        (
            "s",
            Arc::new(StringArray::from(vec![
                Some("a"),
                Some(""),
                Some("a%b"),
                None,
                Some("Z"),
                None,
            ])),
        ),
        (
            "p",
            Arc::new(BooleanArray::from(vec![
                Some(true),
                Some(false),
                None,
                Some(true),
                None,
                Some(false),
            ])),
        ),
        (
            "q",
            Arc::new(BooleanArray::from(vec![
                Some(false),
                None,
                None,
                Some(true),
                Some(true),
                Some(false),
            ])),
        ),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(n, c)| (n, c, true)))
        .unwrap()
}

/// Draws expressions as SQL text.
struct Draw(u64);

impl Draw {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % n
    }

    fn of(&mut self, choices: &[&str]) -> String {
        choices[self.below(choices.len())].to_string()
    }

    fn number(&mut self, depth: usize) -> String {
        if depth == 0 {
            return self.of(&["a", "b", "i", "x", "d", "0", "1", "2", "5", "NULL", "0.5"]);
        }
        match self.below(7) {
            0..=2 => {
                let op = self.of(&["+", "-", "*", "/", "%"]);
                format!("({} {op} {})", self.number(depth - 1), self.number(depth - 1))
            }
            3 => format!(
                "CASE WHEN {} THEN {} ELSE {} END",
                self.condition(depth - 1),
                self.number(depth - 1),
                self.number(depth - 1)
            ),
            4 => format!("COALESCE({}, {})", self.number(depth - 1), self.number(depth - 1)),
            5 => format!("CAST({} AS {})", self.number(depth - 1), self.of(&["BIGINT", "DOUBLE"])),
            _ => format!("NULLIF({}, {})", self.number(depth - 1), self.number(depth - 1)),
        }
    }

    fn condition(&mut self, depth: usize) -> String {
        if depth == 0 {
            return self.of(&["p", "q", "TRUE", "FALSE", "s LIKE 'a%'", "s = ''", "s IS NULL"]);
        }
        match self.below(9) {
            0..=1 => {
                let op = self.of(&["AND", "OR"]);
                format!("({} {op} {})", self.condition(depth - 1), self.condition(depth - 1))
            }
            2 => format!("NOT ({})", self.condition(depth - 1)),
            3..=5 => {
                let op = self.of(&["=", "<>", "<", "<=", ">", ">="]);
                format!("{} {op} {}", self.number(depth - 1), self.number(depth - 1))
            }
            6 => {
                let is = self.of(&["NULL", "NOT NULL", "DISTINCT FROM 1", "NOT DISTINCT FROM a"]);
                format!("{} IS {is}", self.number(depth - 1))
            }
            7 => {
                let not = self.of(&["", "NOT "]);
                format!("{} {not}IN (1, {}, 5)", self.number(0), self.number(depth - 1))
            }
            _ => format!("{} BETWEEN {} AND 5", self.number(depth - 1), self.number(0)),
        }
    }

    /// Several lists of one column.
    fn lists(&mut self, depth: usize, column: &str) -> String {
        let not = self.of(&["", "NOT "]);
        if depth == 0 {
            let list = self.of(&["(1)", "(1, 5)", "(5, -3)", "(NULL, 5)", "(0, 5)"]);
            return format!("{column} {not}IN {list}");
        }
        let op = self.of(&["AND", "OR"]);
        format!("{not}({} {op} {})", self.lists(depth - 1, column), self.lists(depth - 1, column))
    }
}

#[test]
fn simplified_expressions_have_the_same_values() {
    let batch = batch();
    let schema = DFSchema::try_from_qualified_schema(INPUT, batch.schema().as_ref()).unwrap();
    let (catalog, functions) = (Catalog::default(), Functions::new());
    let files = FileTables::new();
    let context =
        Context { catalog: &catalog, functions: &functions, files: &files, columns: None };
    let planner = SqlToRel::new_with_options(&context, parser_options());
    let info = SimplifyContext::builder().with_schema(Arc::new(schema.clone())).build();
    let simplifier = ExprSimplifier::new(info.clone());
    let (mut compared, mut changed, mut rewritten) = (0, 0, 0);
    let mut draw = Draw(20_261_121);
    let mut lists = Draw(48);
    for round in 0..4400 {
        let text = match round {
            4000.. => {
                let column = lists.of(&["a", "i", "x", "d"]);
                lists.lists(2, &column)
            }
            _ if round % 2 == 0 => draw.condition(3),
            _ => draw.number(3),
        };
        let dialect = MillstreamDialect::default();
        let parser = Parser::new(&dialect).try_with_sql(&text);
        let sql = parser.unwrap().parse_expr().unwrap();
        // Some do not go together (a number and a condition): not our matter here.
        let Ok(expr) = planner.sql_to_expr(sql, &schema, &mut PlannerContext::new()) else {
            continue;
        };
        let Ok(expr) = dates_as_times(expr, &schema) else { continue };
        let Ok(expr) = simplifier.coerce(expr.data, &schema) else { continue };
        let Ok(meant) = as_meant(expr.clone(), &schema, &functions.config) else { continue };
        let Ok(simple) = simplified(meant, info.clone()) else { continue };
        let now = DateTime::UNIX_EPOCH;
        let run = |e: &datafusion_expr::Expr| {
            let compiled = compile(e, &schema, now, &functions.config).unwrap();
            compiled.evaluate(&batch)
        };
        // An expression that fails may succeed once simplified: `FALSE AND 1 / 0 = 1`.
        let Ok(before) = run(&expr) else { continue };
        let after = run(&simple);
        let after = after.unwrap_or_else(|e| panic!("{text}\nsimplified to {simple}: {e}"));
        assert_eq!(shown(&before), shown(&after), "{text}\nsimplified to {simple}");
        compared += 1;
        changed += usize::from(expr != simple);
        // As conditions they are TRUE for the same rows.
        if round % 2 == 0 {
            let filter = condition::filter(simple.clone(), &schema).unwrap();
            let filter = condition::value(filter, &schema).unwrap();
            let asked = run(&filter).unwrap_or_else(|e| panic!("{text}\nas {filter}: {e}"));
            assert_eq!(trues(&before), trues(&asked), "{text}\nas {filter}");
            rewritten += usize::from(filter != simple);
        }
    }
    assert!(compared > 1500 && changed > 500, "{compared} compared, {changed} changed");
    assert!(rewritten > 50, "{rewritten} rewritten as conditions");
}

/// The rows for which a condition holds.
fn trues(array: &ArrayRef) -> Vec<bool> {
    shown(array).iter().map(|value| value == "true").collect()
}

/// Values as text; the type may be another one (a NULL without a type).
fn shown(array: &ArrayRef) -> Vec<String> {
    let value = |row| match array.logical_nulls().is_some_and(|n| n.is_null(row)) {
        true => "NULL".to_string(),
        false if *array.data_type() == DataType::Null => "NULL".to_string(),
        false => arrow::util::display::array_value_to_string(array, row).unwrap(),
    };
    (0..array.len()).map(value).collect()
}
