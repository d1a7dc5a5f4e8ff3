//! Rows of both kinds of operators.

use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray, StructArray};
use arrow::datatypes::{DataType, Field};

use crate::random::Random;

/// The columns of a row: two keys, and values.
pub(crate) const COLUMNS: [(&str, DataType); 5] = [
    ("number", DataType::Int64),
    ("name", DataType::Utf8),
    ("value", DataType::Int64),
    ("float", DataType::Float64),
    ("text", DataType::Utf8),
];

/// The columns of a row that is ranked by the first.
pub(crate) const RANKED: [usize; 3] = [2, 4, 3];

/// The number of a row that has none in an order.
pub(crate) const UNORDERED: &str = "number of a row";

/// The time of a row, and numbers from which its values are made.
pub(crate) type Row = (i64, [u64; 4]);

/// Rows with their times, and the input that they are of.
pub(crate) struct Chunk {
    pub(crate) input: usize,
    pub(crate) rows: Vec<Row>,
    pub(crate) watermark: i64,
}

/// Rows in about the order of time; `keys` numbers.
pub(crate) fn chunks(
    random: &mut Random,
    count: usize,
    keys: u64,
    inputs: u64,
    step_us: u64,
) -> Vec<Chunk> {
    let mut now = 0;
    let mut chunk = |_| {
        let row = |random: &mut Random, now: i64| {
            // Some come late for windows that have fired.
            let late_us = if random.one_in(10) { 20 * step_us } else { step_us };
            let time = now - random.below(late_us) as i64;
            let values = [random.below(keys), random.below(4), random.below(40), random.below(9)];
            (time, values)
        };
        let rows = (0..1 + random.below(30)).map(|_| row(random, now)).collect();
        let input = random.below(inputs) as usize;
        // Now and then nothing comes for a while.
        let pause = if random.one_in(8) { 8 * step_us } else { step_us };
        now += random.below(pause) as i64;
        Chunk { input, rows, watermark: now - step_us as i64 }
    };
    (0..count).map(&mut chunk).collect()
}

pub(crate) fn batch(rows: &[Row], scale: i64) -> RecordBatch {
    let of = |n: usize| rows.iter().map(move |(_, values)| values[n]);
    let ints = |n: usize, scale: i64| -> ArrayRef {
        Arc::new(Int64Array::from_iter_values(of(n).map(|v| v as i64 * scale)))
    };
    let names = [Some(""), Some("short"), Some("a name that is longer than a word"), None];
    // Sums of the first and the others are wide.
    let float = |v: u64| if v == 11 { 1e300 } else { 1e17 / (v as f64 + 1.0) - 3e15 };
    let float = of(2).map(|v| (v % 5 > 0).then(|| float(v)));
    let columns: [ArrayRef; 5] = [
        ints(0, scale),
        Arc::new(StringArray::from_iter(of(1).map(|v| names[v as usize]))),
        ints(2, 1),
        Arc::new(float.collect::<Float64Array>()),
        Arc::new(StringArray::from_iter(of(3).map(|v| (v > 0).then(|| format!("text {v}"))))),
    ];
    let field = |n: usize| {
        let (name, of) = &COLUMNS[n];
        (Arc::new(Field::new(*name, of.clone(), true)), columns[n].clone())
    };
    let row: ArrayRef = Arc::new(StructArray::from(RANKED.map(field).to_vec()));
    let names = COLUMNS.iter().map(|(name, _)| *name).chain(["row"]);
    let all = names.zip(columns.iter().cloned().chain([row]));
    RecordBatch::try_from_iter_with_nullable(all.map(|(name, column)| (name, column, true)))
        .expect("columns of one length")
}
