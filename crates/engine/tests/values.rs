//! Tests of keys and aggregates at their edges, merged late: NULL, NaN and -0.0; integers and
//! decimals whose sums leave the range of their type on the way; FILTER and WHERE that are NULL;
//! watermarks that the records bring along. Simulated jobs are compared with a few lines of plain
//! Rust.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::support::{Memory, Random, call, key, run};
use arrow::array::*;
use arrow::datatypes::*;
use millstream_contract::expr::{Evaluate, Expr};
use millstream_contract::plan::*;
use millstream_contract::settings::FragmentMode;
use millstream_contract::table::Sharing;
use millstream_contract::{Error, Result, Settings};

#[derive(Clone, Debug)]
struct Row {
    ts_ms: i64,
    /// The watermark that it carries, which may be ahead of its time.
    mark_ms: i64,
    float: Option<f64>,
    big: Option<i64>,
    flag: Option<bool>,
    text: Option<String>,
    /// Hundredths.
    decimal: Option<i128>,
    kept: Option<bool>,
}

const MS: DataType = DataType::Timestamp(TimeUnit::Millisecond, None);
const DECIMAL: DataType = DataType::Decimal128(38, 2);
/// The greatest `DECIMAL(38, 2)`, in hundredths.
const DECIMAL_MAX: i128 = 10i128.pow(38) - 1;

fn rows(random: &mut Random, count: i64) -> Vec<Row> {
    let other_nan = f64::from_bits(0xFFF8_0000_0000_1234);
    let floats =
        [f64::NAN, other_nan, 0.0, -0.0, f64::INFINITY, f64::NEG_INFINITY, 1.5, -2.125, 1e5];
    (0..count)
        .map(|i| {
            let back = if random.below(8) == 0 { random.below(2500) as i64 } else { 0 };
            let ts_ms = i * 11 - 3000 - back;
            let ahead = if random.below(40) == 0 { 1500 } else { 0 };
            let some = |random: &mut Random| random.below(6) > 0;
            let float = floats[random.below(floats.len() as u64) as usize];
            // Sums of a few of these leave 64 bits and come back.
            let big =
                [i64::MAX, i64::MIN + 2, 0, 7, 3_002_399_751_580_331][random.below(5) as usize];
            let decimal = [DECIMAL_MAX, -DECIMAL_MAX, 0, 25, -125][random.below(5) as usize];
            Row {
                ts_ms,
                mark_ms: ts_ms - 200 + ahead,
                float: some(random).then_some(float),
                big: some(random).then_some(big),
                flag: some(random).then(|| random.below(2) == 0),
                text: some(random).then(|| "xyz"[..random.below(4) as usize].to_string()),
                decimal: some(random).then_some(decimal),
                kept: some(random).then(|| random.below(5) > 0),
            }
        })
        .collect()
}

fn table(splits: &[Vec<Row>], batch_rows: usize) -> Memory {
    let schema = Arc::new(Schema::new(vec![
        Field::new("ts", MS, false),
        Field::new("mark", MS, false),
        Field::new("float", DataType::Float64, true),
        Field::new("big", DataType::Int64, true),
        Field::new("flag", DataType::Boolean, true),
        Field::new("text", DataType::Utf8, true),
        Field::new("decimal", DECIMAL, true),
        Field::new("kept", DataType::Boolean, true),
    ]));
    let batch = |rows: &[Row]| {
        let ms = |ms: fn(&Row) -> i64| -> ArrayRef {
            Arc::new(TimestampMillisecondArray::from_iter_values(rows.iter().map(ms)))
        };
        let decimal: Decimal128Array = rows.iter().map(|r| r.decimal).collect();
        let columns: Vec<ArrayRef> = vec![
            ms(|r| r.ts_ms),
            ms(|r| r.mark_ms),
            Arc::new(rows.iter().map(|r| r.float).collect::<Float64Array>()),
            Arc::new(rows.iter().map(|r| r.big).collect::<Int64Array>()),
            Arc::new(rows.iter().map(|r| r.flag).collect::<BooleanArray>()),
            Arc::new(rows.iter().map(|r| r.text.as_deref()).collect::<StringArray>()),
            Arc::new(decimal.with_data_type(DECIMAL)),
            Arc::new(rows.iter().map(|r| r.kept).collect::<BooleanArray>()),
        ];
        RecordBatch::try_new(schema.clone(), columns).unwrap()
    };
    let splits = splits.iter().map(|rows| rows.chunks(batch_rows).map(batch).collect()).collect();
    Memory { schema, splits, sharing: Sharing::Whole }
}

/// `SELECT window_start, window_end, keys…, aggregates… WHERE kept GROUP BY keys…`
fn query(source: Memory, keys: Vec<Key>, aggregates: Vec<AggregateCall>) -> Plan {
    let mut fields: Vec<Field> =
        ["window_start", "window_end", "window_time"].map(|n| Field::new(n, MS, false)).to_vec();
    fields.extend(keys.iter().map(|k| Field::new(&k.name, k.data_type.clone(), k.nullable)));
    for (i, a) in aggregates.iter().enumerate() {
        fields.push(Field::new(format!("a{i}"), a.result_type.clone(), true));
    }
    let fired = Arc::new(Schema::new(fields));
    let source = Source {
        name: "events".into(),
        schema: source.schema.clone(),
        projection: (0..8).collect(),
        derived: vec![],
        event_time: Some(EventTime {
            zone: None,
            column: 0,
            watermark: Watermark::Expr(Expr::Column(1)),
            idle_timeout_us: None,
        }),
        table: Arc::new(source),
    };
    let aggregate = Aggregate {
        windows_in_slice: 1,
        pairs: None,
        window: Some(Tumble { size_us: WINDOW_MS * 1000, offset_us: 0 }.into()),
        keys,
        aggregates,
        project: (0..fired.fields().len()).map(Expr::Column).collect(),
        fired: fired.clone(),
        having: None,
    };
    let operator = Operator::Aggregate(aggregate);
    Plan::of_one_stage(source, Some(Expr::Column(7)), operator, fired)
}

const WINDOW_MS: i64 = 1000;

/// The rows that count, by window; and how many are late.
fn windows(splits: &[Vec<Row>]) -> (BTreeMap<i64, Vec<&Row>>, u64) {
    let (mut windows, mut late) = (BTreeMap::<i64, Vec<&Row>>::new(), 0);
    for split in splits {
        let mut watermark = i64::MIN;
        for row in split {
            let before = watermark;
            watermark = watermark.max(row.mark_ms);
            let start = row.ts_ms.div_euclid(WINDOW_MS) * WINDOW_MS;
            if row.kept != Some(true) {
                continue;
            }
            if start + WINDOW_MS <= before {
                late += 1;
            } else {
                windows.entry(start).or_default().push(row);
            }
        }
    }
    (windows, late)
}

fn settings(random: &mut Random, seed: u64) -> Settings {
    let modes = [FragmentMode::Auto, FragmentMode::Aggregate, FragmentMode::PassThrough];
    Settings {
        workers: 1 + random.below(4) as usize,
        simulate: Some(seed),
        epoch_bytes: [1, 5000][random.below(2) as usize],
        fragment_mode: modes[random.below(3) as usize],
        ..Settings::default()
    }
}

/// A cell as the tests' tables print it; floats by their value, so that there is one NaN and one
/// zero.
fn show<T: ToString>(value: Option<T>) -> String {
    value.map_or(String::new(), |v| v.to_string())
}

fn show_float(value: Option<f64>) -> String {
    let one = value.map(|v| if v.is_nan() { f64::NAN } else { v + 0.0 });
    arrow::util::display::array_value_to_string(&Float64Array::from(vec![one]), 0).unwrap()
}

/// Smallest first, NaN last.
fn by_size(a: &f64, b: &f64) -> std::cmp::Ordering {
    a.partial_cmp(b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

/// `window_start|window_end|` as the tests' tables print them.
fn bounds(start: i64) -> String {
    let ends =
        TimestampMillisecondArray::from(vec![start, start + WINDOW_MS, start + WINDOW_MS - 1]);
    let text = |i| arrow::util::display::array_value_to_string(&ends, i).unwrap();
    format!("{}|{}|{}", text(0), text(1), text(2))
}

/// Runs the query under many schedules; its rows, in any order, must be the expected ones.
fn check(
    seeds: u64,
    keys: &[Key],
    aggregates: &[AggregateCall],
    expected: impl Fn(&[&Row]) -> Vec<String>,
) {
    let (mut late_sum, mut merges, mut early) = (0, 0, 0);
    for seed in 0..seeds {
        let mut random = Random::new(seed + 1);
        let splits: Vec<Vec<Row>> =
            (0..1 + random.below(3)).map(|_| rows(&mut random, 400)).collect();
        let source = table(&splits, 1 + random.below(60) as usize);
        let settings = settings(&mut random, seed);
        let (stats, found) = run(&query(source, keys.to_vec(), aggregates.to_vec()), &settings);
        let mut found = found.unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        let (windows, late) = windows(&splits);
        let lines = windows.iter().flat_map(|(start, rows)| {
            let lines = expected(rows).into_iter();
            lines.map(move |line| format!("{}|{line}", bounds(*start)))
        });
        let mut lines: Vec<String> = lines.collect();
        lines.sort();
        found.sort();
        let differing = found.iter().zip(&lines).find(|(a, b)| a != b);
        assert!(differing.is_none(), "seed {seed}, {settings:?}: {differing:?}");
        assert_eq!(found.len(), lines.len(), "seed {seed}, {settings:?}");
        assert_eq!(stats.late_records, late, "seed {seed}, {settings:?}");
        (late_sum, merges, early) =
            (late_sum + late, merges + stats.merges, early + stats.windows_fired_early);
    }
    assert!(
        late_sum > 0 && merges > 0 && early > 0,
        "{late_sum} late, {merges} merges, {early} early"
    );
}

#[test]
fn nan_zero_and_null_are_one_key_each() {
    use AggregateFunction::*;
    let keys = [key("float", 2, DataType::Float64, true), key("flag", 4, DataType::Boolean, true)];
    let aggregates = [
        call(Count, None, DataType::Int64),
        call(Count, Some((3, DataType::Int64, true)), DataType::Int64),
        call(Max, Some((5, DataType::Utf8, true)), DataType::Utf8),
    ];
    check(200, &keys, &aggregates, |rows| {
        let mut groups: BTreeMap<(String, Option<bool>), Vec<&Row>> = BTreeMap::new();
        for row in rows {
            groups.entry((show_float(row.float), row.flag)).or_default().push(row);
        }
        let line = |((float, flag), rows): ((String, Option<bool>), Vec<&Row>)| {
            let known = rows.iter().filter(|r| r.big.is_some()).count();
            let text = rows.iter().filter_map(|r| r.text.clone()).max();
            format!("{float}|{}|{}|{known}|{}", show(flag), rows.len(), show(text))
        };
        groups.into_iter().map(line).collect()
    });
}

/// The mean, correctly rounded.
fn exact_mean(values: &[i64]) -> Option<f64> {
    let (sum, count) = (values.iter().map(|v| i128::from(*v)).sum::<i128>(), values.len() as i128);
    if values.is_empty() {
        return None;
    }
    if sum.abs() < 1 << 53 {
        return Some(sum as f64 / count as f64);
    }
    // With so many more bits than a double has, a last one for the rest makes converting round
    // right.
    let scaled = sum.checked_mul(1 << 50).expect("a few hundred 64-bit numbers");
    let quotient = (scaled / count) | i128::from(scaled % count != 0);
    Some(quotient as f64 / 2f64.powi(50))
}

#[test]
fn sums_leave_their_type_and_come_back() {
    use AggregateFunction::*;
    let big = || Some((3, DataType::Int64, true));
    let float = || Some((2, DataType::Float64, true));
    let decimal = || Some((6, DECIMAL, true));
    let flagged = |call: AggregateCall| AggregateCall { filter: Some(Expr::Column(4)), ..call };
    let aggregates = [
        call(Count, None, DataType::Int64),
        call(Avg, big(), DataType::Float64),
        call(Min, float(), DataType::Float64),
        call(Max, float(), DataType::Float64),
        call(Avg, float(), DataType::Float64),
        flagged(call(Count, None, DataType::Int64)),
        flagged(call(Max, big(), DataType::Int64)),
        call(Min, decimal(), DECIMAL),
        flagged(call(Max, decimal(), DECIMAL)),
    ];
    let keys = [key("text", 5, DataType::Utf8, true)];
    check(200, &keys, &aggregates, |rows| {
        let mut groups: BTreeMap<Option<&str>, Vec<&Row>> = BTreeMap::new();
        for row in rows {
            groups.entry(row.text.as_deref()).or_default().push(row);
        }
        let line = |(text, rows): (Option<&str>, Vec<&Row>)| {
            let bigs: Vec<i64> = rows.iter().filter_map(|r| r.big).collect();
            let floats: Vec<f64> = rows.iter().filter_map(|r| r.float).collect();
            let flagged: Vec<&&Row> = rows.iter().filter(|r| r.flag == Some(true)).collect();
            // Finite ones are few and short, so that adding them is exact.
            let mean = floats.iter().sum::<f64>() / floats.len() as f64;
            let hundredths = |value: Option<i128>| {
                let array = Decimal128Array::from(vec![value]).with_data_type(DECIMAL);
                arrow::util::display::array_value_to_string(&array, 0).unwrap()
            };
            [
                show(text),
                rows.len().to_string(),
                show_float(exact_mean(&bigs)),
                show_float(floats.iter().copied().min_by(by_size)),
                show_float(floats.iter().copied().max_by(by_size)),
                show_float((!floats.is_empty()).then_some(mean)),
                flagged.len().to_string(),
                show(flagged.iter().filter_map(|r| r.big).max()),
                hundredths(rows.iter().filter_map(|r| r.decimal).min()),
                hundredths(flagged.iter().filter_map(|r| r.decimal).max()),
            ]
            .join("|")
        };
        groups.into_iter().map(line).collect()
    });
}

/// An overflow is judged on the final sum alone, and then it is an error, with any number of
/// workers.
#[test]
fn only_a_final_sum_can_overflow() {
    use AggregateFunction::*;
    let row = |i: i64, big: i64, decimal: i128| Row {
        ts_ms: i,
        mark_ms: i,
        float: None,
        big: Some(big),
        flag: None,
        text: None,
        decimal: Some(decimal),
        kept: Some(true),
    };
    let up: Vec<Row> = (0..100).map(|i| row(i, i64::MAX, DECIMAL_MAX)).collect();
    let down: Vec<Row> = (0..100).map(|i| row(i, -i64::MAX, -DECIMAL_MAX)).collect();
    let aggregates = [
        call(Sum, Some((3, DataType::Int64, true)), DataType::Int64),
        call(Sum, Some((6, DECIMAL, true)), DECIMAL),
    ];
    for seed in 0..40 {
        let settings = settings(&mut Random::new(seed), seed);
        let mut back = down.clone();
        back.push(row(100, 42, 17));
        let source = table(&[up.clone(), back.clone()], 7);
        let (_, found) = run(&query(source, vec![], aggregates.to_vec()), &settings);
        let expected = vec![format!("{}|42|0.17", bounds(0))];
        assert_eq!(found.unwrap(), expected, "seed {seed}");
        // Exactly the greatest BIGINT.
        let over = vec![row(101, i64::MAX, 0), row(102, -42, 0)];
        let source = table(&[up.clone(), back, over], 7);
        let (_, found) = run(&query(source, vec![], aggregates.to_vec()), &settings);
        assert_eq!(found.unwrap(), [format!("{}|{}|0.17", bounds(0), i64::MAX)], "seed {seed}");
        for calls in [&aggregates[..1], &aggregates[1..]] {
            let source = table(&[up.clone(), vec![]], 7);
            let (_, found) = run(&query(source, vec![], calls.to_vec()), &settings);
            assert!(matches!(found, Err(Error::Overflow { .. })), "seed {seed}: {found:?}");
        }
        let source = table(&[vec![row(0, i64::MAX, 1), row(1, 1, 1)]], 1);
        let (_, found) = run(&query(source, vec![], aggregates[..1].to_vec()), &settings);
        assert!(matches!(found, Err(Error::Overflow { .. })), "seed {seed}: {found:?}");
    }
}

/// `big`, of which no value may be negative.
#[derive(Debug)]
struct NotNegative;

impl std::fmt::Display for NotNegative {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("not_negative(big)")
    }
}

impl Evaluate for NotNegative {
    fn evaluate(&self, batch: &RecordBatch) -> Result<ArrayRef> {
        let values = batch.column(3);
        if values.as_primitive::<Int64Type>().iter().flatten().any(|v| v < 0) {
            return Err(Error::Internal("a negative value".into()));
        }
        Ok(values.clone())
    }
    fn data_type(&self) -> &DataType {
        &DataType::Int64
    }
}

/// What WHERE takes out, and what comes too late, is not evaluated any further: it may be what an
/// expression fails on.
#[test]
fn expressions_see_only_records_that_count() {
    let row = |ts_ms: i64, big: i64, kept: Option<bool>| Row {
        ts_ms,
        mark_ms: ts_ms,
        float: None,
        big: Some(big),
        flag: None,
        text: None,
        decimal: None,
        kept,
    };
    let (yes, no) = (Some(true), Some(false));
    let rows = vec![
        row(10, 1, yes),
        row(20, -1, no),
        row(30, -1, None),
        row(2500, 1, yes),
        row(40, -1, yes),
        row(2600, 2, yes),
    ];
    let keys =
        [Key { expr: Expr::Computed(Arc::new(NotNegative)), ..key("k", 3, DataType::Int64, true) }];
    let count = call(AggregateFunction::Count, None, DataType::Int64);
    for seed in 0..20 {
        let source = table(std::slice::from_ref(&rows), 1 + seed as usize % 6);
        let settings = settings(&mut Random::new(seed), seed);
        let (stats, found) = run(&query(source, keys.to_vec(), vec![count.clone()]), &settings);
        let expected = [(0, "1|1"), (2000, "1|1"), (2000, "2|1")];
        let expected = expected.map(|(start, rest)| format!("{}|{rest}", bounds(start)));
        assert_eq!(found.unwrap_or_else(|e| panic!("seed {seed}: {e}")), expected, "seed {seed}");
        assert_eq!(stats.late_records, 1, "seed {seed}");
    }
}
