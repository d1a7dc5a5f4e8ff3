//! Tests of every scalar function and operator, with arguments of all types and at their edges.
//! Each call gives values of its type or a clear error. Nothing panics, and no message is internal.
//!
//! `MILLSTREAM_SEED` repeats a run with one seed, `MILLSTREAM_CALLS` makes more calls of each form.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

use arrow::array::*;
use millstream_contract::error::{Error, Result};
use millstream_contract::table::{Connectors, OpenOptions, Split, Table, TableOptions};
use millstream_contract::{plan::Plan, sink::Sink};

use crate::plan::planner::{Outcome, Planner};
use crate::scalar_test_forms::FORMS;
use crate::stages::functions::Functions;
use crate::syntax::prelude::*;
use crate::syntax::script::parse_script;

#[derive(Debug)]
struct Nothing;

impl Connectors for Nothing {
    fn table(&self, options: &TableOptions) -> Result<Arc<dyn Table>> {
        Err(Error::Internal(format!("no table {}", options.name)))
    }

    fn sink(&self, options: &TableOptions) -> Result<Arc<dyn Sink>> {
        Err(Error::Internal(format!("no sink {}", options.name)))
    }
}

#[derive(Debug)]
struct Columns(SchemaRef);

impl Table for Columns {
    fn schema(&self) -> SchemaRef {
        self.0.clone()
    }

    fn bounded(&self) -> bool {
        true
    }

    fn open(&self, _: &[usize], _: &OpenOptions) -> Result<Vec<Box<dyn Split>>> {
        Ok(vec![])
    }

    fn describe(&self, _: &[usize]) -> String {
        "columns".into()
    }
}

/// A small generator of random numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.below(from.len())]
    }
}

const I64_EDGES: [i64; 9] = [0, 1, -1, 7, 255, 400, -86_400_000_000, i64::MAX, i64::MIN];

/// A column of every type: edges, and NULL in the last row.
// tidy: long function: a table of edges, a column for each type
fn edges() -> RecordBatch {
    let longs: Int64Array = I64_EDGES.into_iter().map(Some).chain([None]).collect();
    let longs: ArrayRef = Arc::new(longs);
    let clipped = |low: i64, high: i64, to: DataType| {
        let numbers: &Int64Array = longs.as_primitive();
        let numbers: Int64Array = numbers.unary(|n| n.clamp(low, high));
        cast(&numbers, &to).unwrap()
    };
    // Years 1 to 9999, and what a type holds.
    let time = |unit: TimeUnit, zone: Option<&str>| {
        let per_second = match unit {
            TimeUnit::Second => 1,
            TimeUnit::Millisecond => 1_000,
            TimeUnit::Microsecond => 1_000_000,
            TimeUnit::Nanosecond => 1_000_000_000,
        };
        let bound = |seconds: i64| seconds.saturating_mul(per_second);
        let numbers = clipped(bound(-62_135_596_800), bound(253_402_300_799), DataType::Int64);
        cast(&numbers, &DataType::Timestamp(unit, zone.map(Into::into))).unwrap()
    };
    let decimals = |digits: u8, scale: i8| {
        let most = 10i128.pow(digits.into()) - 1;
        let values = [0, 1, -1, most, -most, 5, 49, -51, most / 2].map(Some);
        let values: Decimal128Array = values.into_iter().chain([None]).collect();
        Arc::new(values.with_precision_and_scale(digits, scale).unwrap()) as ArrayRef
    };
    let doubles = vec![
        Some(0.0),
        Some(-0.0),
        Some(1.5),
        Some(-2.5),
        Some(f64::NAN),
        Some(f64::INFINITY),
        Some(f64::NEG_INFINITY),
        Some(f64::MAX),
        Some(5e-324),
        None,
    ];
    let floats = vec![
        Some(0.0),
        Some(-0.0),
        Some(1.5),
        Some(f32::MIN),
        Some(f32::NAN),
        Some(f32::INFINITY),
        Some(f32::NEG_INFINITY),
        Some(f32::MAX),
        Some(1e-45),
        None,
    ];
    let texts = vec![
        Some(""),
        Some("a"),
        Some("e\u{301}"),
        Some("日本"),
        Some("%_\\"),
        Some("("),
        Some("-7"),
        Some("2024-01-31 12:30:00"),
        Some("\u{0}\n"),
        None,
    ];
    let bytes: Vec<Option<&[u8]>> = vec![
        Some(b""),
        Some(b"a"),
        Some(b"\xff\xfe"),
        Some(b"\0"),
        Some(b"YWI="),
        Some(b"("),
        Some(b"ab"),
        Some(b"abcdefgh"),
        Some(b"\n"),
        None,
    ];
    let days = clipped(-719_162, 2_932_896, DataType::Int32);
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("b", Arc::new((0..10).map(|i| (i < 9).then_some(i % 2 == 0)).collect::<BooleanArray>())),
        ("i8", clipped(-128, 127, DataType::Int8)),
        ("i16", clipped(-32_768, 32_767, DataType::Int16)),
        ("i32", clipped(i32::MIN.into(), i32::MAX.into(), DataType::Int32)),
        ("i64", longs.clone()),
        ("u8", clipped(0, 255, DataType::UInt8)),
        ("u64", clipped(0, i64::MAX, DataType::UInt64)),
        ("f32", Arc::new(Float32Array::from(floats))),
        ("f64", Arc::new(Float64Array::from(doubles))),
        ("d", decimals(10, 2)),
        ("d38", decimals(38, 0)),
        ("dd", decimals(38, 38)),
        ("s", Arc::new(StringArray::from(texts))),
        ("y", Arc::new(BinaryArray::from(bytes))),
        ("dt", cast(&days, &DataType::Date32).unwrap()),
        (
            "tm",
            cast(
                &clipped(0, 86_399_999, DataType::Int32),
                &DataType::Time32(TimeUnit::Millisecond),
            )
            .unwrap(),
        ),
        ("t0", time(TimeUnit::Second, None)),
        ("t3", time(TimeUnit::Millisecond, None)),
        ("t6", time(TimeUnit::Microsecond, None)),
        ("t9", time(TimeUnit::Nanosecond, None)),
        ("z", time(TimeUnit::Millisecond, Some("UTC"))),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(n, c)| (n, c, true)))
        .unwrap()
}

/// Arguments that are no columns.
const CONSTANTS: [&str; 31] = [
    "NULL",
    "TRUE",
    "0",
    "1",
    "-1",
    "400",
    "310",
    "-9223372036854775808",
    "9223372036854775807",
    "0.5",
    "1e308",
    "-1e308",
    "''",
    "'a'",
    "'('",
    "'%'",
    "'UTC'",
    "'day'",
    "'hex'",
    "'yyyy-MM-dd'",
    "DATE '0001-01-01'",
    "DATE '9999-12-31'",
    "TIME '23:59:59'",
    "TIMESTAMP '9999-12-31 23:59:59'",
    "TIMESTAMP '0001-01-01 00:00:00'",
    "INTERVAL '1' DAY",
    "INTERVAL '-3' MONTH",
    "INTERVAL '1.5' SECOND",
    "(t6 - t3)",
    "X'ff'",
    "CAST('1' AS DECIMAL(38, 37))",
];

/// Words of DataFusion's that no message may have.
const FOREIGN: &[&str] = &[
    "nternal",
    "report",
    "DataFusion",
    "Utf8",
    "Int8",
    "Int16",
    "Int32",
    "Int64",
    "Float32",
    "Float64",
    "Decimal128",
    "Timestamp(",
    "Interval(",
    "MonthDayNano",
    "Duration(",
    "Date32",
    "Time32",
    "Time64",
    "Arrow",
    "ScalarValue",
    "USER_DEFINED",
    "TypeSignature",
    "Coercible",
    "NativeType",
    "backtrace",
    "Candidate functions",
    "panicked",
];

struct Calls {
    planner: Planner,
    batch: RecordBatch,
    random: Random,
    faults: Vec<String>,
    given: usize,
    refused: usize,
}

impl Calls {
    fn new(seed: u64) -> Calls {
        let batch = edges();
        let mut planner = Planner::new(Arc::new(Nothing), PathBuf::from("."));
        planner.set_start_time_us(1_700_000_000_000_000);
        planner.register_table("t", Arc::new(Columns(batch.schema())), None).unwrap();
        Calls { planner, batch, random: Random(seed), faults: vec![], given: 0, refused: 0 }
    }

    fn argument(&mut self) -> String {
        let columns = self.batch.num_columns();
        if self.random.below(3) > 0 {
            return self.batch.schema().field(self.random.below(columns)).name().clone();
        }
        self.random.pick(&CONSTANTS).to_string()
    }

    fn filled(&mut self, form: &str) -> String {
        let mut parts = form.split('?');
        let mut text = parts.next().unwrap_or_default().to_string();
        for part in parts {
            text += &self.argument();
            text += part;
        }
        text
    }

    /// Plans and evaluates one expression; notes what is wrong with what comes.
    fn call(&mut self, text: &str) {
        let statement = format!("SELECT {text} AS v FROM t");
        let statements = parse_script(&statement, "calls.sql");
        let outcome = statements.and_then(|s| self.planner.execute(&s[0]));
        let plan = match outcome {
            Ok(Outcome::Query(planned)) => planned.plan,
            Ok(_) => return self.faults.push(format!("{text}: no query")),
            Err(error) => {
                self.refused += 1;
                if error.kind == ErrorKind::Internal || error.span.is_none() {
                    self.faults.push(format!("{text}\n  {}", error.render()));
                }
                return self.check_message(text, &error.message, error.help.as_deref());
            }
        };
        match catch_unwind(AssertUnwindSafe(|| evaluate(&plan, &self.batch))) {
            Err(_) => self.faults.push(format!("{text}: panics")),
            Ok(Err(error)) => {
                self.refused += 1;
                self.check_message(text, &error.to_string(), None);
            }
            Ok(Ok(array)) => {
                self.given += 1;
                self.check_values(text, &array, plan.stages[0].output.field(0).data_type());
            }
        }
    }

    fn check_message(&mut self, text: &str, message: &str, help: Option<&str>) {
        // What the message quotes is the query's own.
        let own = message.lines().filter(|line| !line.contains('|') && !line.contains("-->"));
        let own = own.chain(help).collect::<Vec<_>>().join("\n").replace(text, "");
        if let Some(word) = FOREIGN.iter().find(|word| own.contains(*word)) {
            self.faults.push(format!("{text}: says '{word}'\n  {own}"));
        }
        let called = message.strip_prefix("there is no ").and_then(|rest| rest.split(' ').next());
        if let Some(name) = called.filter(|name| name.len() > 1 && *name == name.to_uppercase())
            && !text.to_uppercase().contains(name)
        {
            self.faults.push(format!("{text}: names another call\n  {message}"));
        }
    }

    fn check_values(&mut self, text: &str, array: &ArrayRef, declared: &DataType) {
        if array.data_type() != declared {
            let (is, of) = (sql_type_name(array.data_type()), sql_type_name(declared));
            self.faults.push(format!("{text}: gives {is} in place of {of}"));
        }
        if let (DataType::Decimal128(digits, _), Some(values)) =
            (array.data_type(), array.as_primitive_opt::<arrow::datatypes::Decimal128Type>())
            && let Err(error) = values.validate_decimal_precision(*digits)
        {
            self.faults.push(format!("{text}: {error}"));
        }
    }
}

fn evaluate(plan: &Plan, batch: &RecordBatch) -> Result<ArrayRef> {
    let project = plan.stages[0].inputs[0].project.as_ref().expect("a query without state");
    let source = plan.source().expect("one source");
    project.columns[0].evaluate(&batch.project(&source.projection).expect("the table's columns"))
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn every_call_gives_values_or_a_clear_error() {
    let seed = number("MILLSTREAM_SEED").unwrap_or(25);
    let count = number("MILLSTREAM_CALLS").unwrap_or(4) as usize;
    let mut calls = Calls::new(seed);
    let functions: Vec<String> = Functions::new().scalar_names().map(str::to_uppercase).collect();
    for name in &functions {
        for arguments in 0..=4 {
            let form = format!("{name}({})", vec!["?"; arguments].join(", "));
            for _ in 0..if arguments == 0 { 1 } else { count } {
                let text = calls.filled(&form);
                calls.call(&text);
            }
        }
    }
    for form in FORMS {
        for _ in 0..2 * count {
            let text = calls.filled(form);
            calls.call(&text);
        }
    }
    // Neither all memory nor all addresses.
    calls.call("CHAR_LENGTH(LPAD('x', 9223372036854775807, 'yz')) + 1");
    calls.call("CHAR_LENGTH(REPEAT('x', 2000000000)) + 1");
    assert!(calls.given > 150 && calls.refused > 150, "{} and {}", calls.given, calls.refused);
    let faults = &calls.faults;
    assert!(faults.is_empty(), "seed {seed}: {} faults\n{}", faults.len(), faults.join("\n"));
}
