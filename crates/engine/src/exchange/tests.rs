//! Tests that records, partitioned and received, give the tables that a single worker would have.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::*;
use arrow::datatypes::*;
use arrow::util::display::array_value_to_string;

use millstream_state::Leaders;

use super::sender::Sender;
use crate::error::{Error, Result};
use crate::expr::Expr;
use crate::plan::{Aggregate, AggregateCall, AggregateFunction, Argument, Key};
use crate::support::Random;
use millstream_operators::operator::aggregate::grouping::{Grouping, Selected};
use millstream_operators::operator::aggregate::slices::Slices;
use millstream_operators::operator::{Keyed, Room};
use millstream_operators::passed::{Format, Outlet, Reader, Section};
use millstream_operators::windowing::SliceId;

const DECIMAL: DataType = DataType::Decimal128(30, 3);
const TYPES: [DataType; 12] = [
    DataType::Int64,
    DataType::Int32,
    DataType::UInt64,
    DataType::UInt8,
    DataType::Float64,
    DataType::Float32,
    DECIMAL,
    DataType::Utf8,
    DataType::Binary,
    DataType::Boolean,
    DataType::Date32,
    DataType::Timestamp(TimeUnit::Millisecond, None),
];

/// A column of a few different values, some of them NULL if it may be.
fn column(random: &mut Random, data_type: &DataType, nullable: bool, rows: usize) -> ArrayRef {
    let long = random.one_in(4);
    let values: Vec<Option<i64>> = (0..rows)
        .map(|_| (!nullable || !random.one_in(4)).then(|| random.below(40) as i64 - 13))
        .collect();
    let text = |v: &i64| match (v, long) {
        (-13, _) => String::new(),
        (7, true) => "very long ".repeat(60),
        (v, _) => format!("text {v}"),
    };
    let numbers = || values.iter().copied();
    match data_type {
        DataType::Utf8 => {
            Arc::new(numbers().map(|v| v.as_ref().map(text)).collect::<StringArray>())
        }
        DataType::Binary => {
            Arc::new(numbers().map(|v| v.as_ref().map(text)).collect::<BinaryArray>())
        }
        DataType::Boolean => {
            Arc::new(numbers().map(|v| v.map(|v| v > 0)).collect::<BooleanArray>())
        }
        DataType::UInt64 => {
            let big = |v: i64| u64::MAX / 2 + v.unsigned_abs();
            Arc::new(numbers().map(|v| v.map(big)).collect::<UInt64Array>())
        }
        DataType::UInt8 => Arc::new(numbers().map(|v| v.map(|v| v as u8)).collect::<UInt8Array>()),
        DataType::Float64 => {
            let float = |v: i64| if v == 3 { f64::NAN } else { v as f64 * 1.1 };
            Arc::new(numbers().map(|v| v.map(float)).collect::<Float64Array>())
        }
        DataType::Decimal128(..) => {
            let wide = |v: i64| i128::from(v) << 40;
            let array: Decimal128Array = numbers().map(|v| v.map(wide)).collect();
            Arc::new(array.with_data_type(DECIMAL))
        }
        other => {
            let numbers: Int64Array = numbers().collect();
            let small = arrow::compute::cast(&numbers, &DataType::Int32);
            let small = small.expect("they are small") as ArrayRef;
            let number =
                if *other == DataType::Date32 { &small } else { &(Arc::new(numbers) as _) };
            arrow::compute::cast(number, other).expect("a number")
        }
    }
}

/// A random query: columns of the input, keys and aggregates over them.
struct Case {
    types: Vec<(DataType, bool)>,
    grouping: Grouping,
    keys: usize,
}

fn case(random: &mut Random) -> Case {
    let mut types: Vec<(DataType, bool)> = (0..1 + random.below(4))
        .map(|_| (TYPES[random.below(TYPES.len() as u64) as usize].clone(), random.one_in(2)))
        .collect();
    if random.one_in(4) {
        // The hot case.
        types[0] = (DataType::Int64, false);
    }
    let keys = random.below(types.len() as u64 + 1) as usize;
    // What FILTER looks at; now and then for more values than a word has bits.
    let many = random.one_in(10);
    let filters = if many { 12 } else { 1 };
    types.extend((0..filters).map(|_| (DataType::Boolean, true)));
    let first_filter = types.len() as u64 - filters;
    let key = |i: usize| Key {
        name: format!("key {i}"),
        expr: Expr::Column(i),
        data_type: types[i].0.clone(),
        nullable: types[i].1,
    };
    let mut calls = vec![];
    for _ in 0..if many { 300 } else { random.below(6) } {
        let column = random.below(types.len() as u64) as usize;
        let (data_type, nullable) = types[column].clone();
        let argument = Argument { expr: Expr::Column(column), data_type, nullable };
        let filter = random
            .one_in(if many { 1 } else { 4 })
            .then(|| Expr::Column((first_filter + random.below(filters)) as usize));
        use AggregateFunction::*;
        let function = match argument.data_type {
            DataType::Utf8 | DataType::Binary | DataType::Boolean | DataType::Date32 => {
                [Count, Min, Max][random.below(3) as usize]
            }
            DataType::Timestamp(..) => [Count, Min, Max][random.below(3) as usize],
            _ => [Count, Sum, Min, Max, Avg][random.below(5) as usize],
        };
        let counts_rows = function == Count && random.one_in(2);
        let result_type = match (function, &argument.data_type) {
            (Count, _) => DataType::Int64,
            (Sum, DataType::UInt8) => DataType::UInt64,
            (Sum, DataType::UInt64) => continue,
            (Sum, DataType::Int32) => DataType::Int64,
            (Sum | Avg, DataType::Decimal128(_, scale)) => DataType::Decimal128(38, *scale),
            (Avg, DataType::Int64 | DataType::Int32 | DataType::UInt64) => DataType::Float64,
            (Avg | Sum, DataType::Float32 | DataType::Float64) => DataType::Float64,
            (Avg, _) => DataType::Float64,
            (_, other) => other.clone(),
        };
        calls.push(AggregateCall {
            name: format!("{function:?}"),
            function,
            arguments: if counts_rows { vec![] } else { vec![argument] },
            filter,
            result_type,
            frame: String::new(),
        });
    }
    let aggregate = Aggregate {
        windows_in_slice: 1,
        pairs: None,
        window: None,
        keys: (0..keys).map(key).collect(),
        aggregates: calls,
        fired: Arc::new(Schema::empty()),
        having: None,
        project: vec![],
    };
    let grouping = Grouping::new(&aggregate, 0).expect("a good plan");
    Case { types, grouping, keys }
}

impl Case {
    fn batch(&self, random: &mut Random, rows: usize) -> RecordBatch {
        let columns = self.types.iter().enumerate().map(|(i, (data_type, nullable))| {
            (format!("c{i}"), column(random, data_type, *nullable, rows), true)
        });
        RecordBatch::try_from_iter_with_nullable(columns.collect::<Vec<_>>()).expect("a batch")
    }

    fn slices(&self) -> Slices {
        let room = Room { pool_bytes: 1 << 20, ..Room::default() };
        Slices::new(self.grouping.layout.clone(), Leaders::even(1), 0, None, room)
    }

    /// Everything in a table, as text, sorted.
    fn dump(&self, slices: &mut Slices, id: SliceId) -> Vec<String> {
        let Some(table) = slices.remove(id) else { return vec![] };
        let mut lines = vec![];
        for block in 0..table.scan_blocks() {
            let rows = table.scan(block);
            let mut columns =
                self.grouping.codec.decode(&rows, self.grouping.own_keys()).expect("keys");
            columns.extend(self.grouping.aggregates.finish(&rows).expect("values that fit"));
            for row in 0..rows.len() {
                let text = |column| array_value_to_string(column, row).expect("a value");
                let line: Vec<String> =
                    columns.iter().map(|c| format!("{}{}", c.is_null(row), text(c))).collect();
                lines.push(line.join("|"));
            }
        }
        lines.sort();
        lines
    }
}

/// Slots that wait until the test takes them; and credit that comes when it likes.
struct Channel {
    slot: Vec<u64>,
    sent: Vec<Vec<u64>>,
    credits: usize,
}

impl Outlet for Channel {
    fn slot(&mut self) -> Result<Option<&mut [u64]>> {
        Ok((self.credits > 0).then_some(&mut self.slot[..]))
    }

    fn send(&mut self, words: usize) -> Result<()> {
        assert!((1..=self.slot.len()).contains(&words) && self.credits > 0);
        self.credits -= 1;
        self.sent.push(self.slot[..words].to_vec());
        // What was in the slot before is not what is in it now.
        self.slot.fill(0xdead_beef_dead_beef);
        Ok(())
    }
}

/// Runs one random query in one go and with an exchange; returns what was sent.
fn compare(random: &mut Random) -> (Case, Arc<Format>, Vec<Vec<u64>>, bool) {
    let case = case(random);
    let grouping = &case.grouping;
    let format = Arc::new(Format::new(&grouping.codec, &grouping.aggregates));
    let receivers = [1, 1, 2, 3, 4, 11][random.below(6) as usize];
    let slot_words = [8, 32, 200, 1000, 8190][random.below(5) as usize];
    let mut alone = case.slices();
    let mut sender = Sender::new(format.clone(), Leaders::even(receivers));
    let channel = |_| Channel { slot: vec![0; slot_words], sent: vec![], credits: 2 };
    let mut channels: Vec<Channel> = (0..receivers).map(channel).collect();
    let mut tables: Vec<_> =
        (0..receivers).map(|_| (case.slices(), Reader::new(format.clone()))).collect();
    let (mut messages, mut rows_selected, mut starved) = (vec![], 0, false);
    let mut deliver = |random: &mut Random, channels: &mut [Channel], all: bool| {
        let mut marks = vec![];
        for (channel, (slices, reader)) in channels.iter_mut().zip(&mut tables) {
            if all || random.one_in(2) {
                channel.credits = 1 + random.below(4) as usize;
                let mut marked = None;
                for words in channel.sent.drain(..) {
                    let read = reader.read(&words, &mut |r| slices.update_own(grouping, r));
                    marked = read.expect("a good slot");
                    messages.push(words);
                }
                marks.push(marked);
            }
        }
        marks
    };
    for round in 0..1 + random.below(3) {
        let rows_max = if random.one_in(8) { 4000 } else { 300 };
        let rows = 1 + random.below(rows_max) as usize;
        let batch = case.batch(random, rows);
        let mut by_slice = vec![];
        for slice in 0..1 + random.below(3) {
            let share = 1 + random.below(3);
            let rows: Vec<u32> = (0..rows as u32).filter(|_| random.below(4) < share).collect();
            rows_selected += rows.len();
            by_slice.push((SliceId::from_word(slice), rows));
        }
        let keys = batch.columns()[..case.keys].to_vec();
        let arguments = grouping.aggregates.inputs(&batch).expect("columns");
        for (slice, rows) in by_slice.iter().filter(|(_, rows)| !rows.is_empty()) {
            let input = Selected { keys: &keys, arguments: &arguments, rows };
            alone.update(*slice, grouping, &input, None).expect("nothing is sent");
        }
        sender.begin(Keyed { side: 0, keys, arguments, by_slice }).expect("a good batch");
        while !sender.advance(&mut channels).expect("no error") {
            starved = true;
            deliver(random, &mut channels, false);
        }
        while !sender.mark(round as i64 + 5, &mut channels).expect("no error") {
            deliver(random, &mut channels, false);
        }
        let marks = deliver(random, &mut channels, true);
        // Some have had the mark in an earlier delivery.
        assert!(marks.iter().flatten().all(|mark| *mark == round as i64 + 5));
    }
    assert_eq!(sender.rows_sent(), rows_selected as u64);
    assert_eq!(tables.iter().map(|(_, r)| r.rows()).sum::<u64>(), rows_selected as u64);
    for id in (0..3).map(SliceId::from_word) {
        let mut merged: Vec<String> =
            tables.iter_mut().flat_map(|(slices, _)| case.dump(slices, id)).collect();
        merged.sort();
        assert_eq!(merged, case.dump(&mut alone, id));
    }
    (case, format, messages, starved)
}

#[test]
fn exchanged_records_give_the_same_tables() {
    let (mut starved, mut seen) = (0, BTreeMap::<bool, u32>::new());
    let mut many_bits = 0;
    for seed in 1..400 {
        let mut random = Random::new(seed);
        let (_, format, messages, waited) = compare(&mut random);
        starved += u32::from(waited);
        many_bits += u32::from(format.bit_words() > 1);
        *seen.entry(format.has_vars()).or_default() += messages.len() as u32;
    }
    assert!(starved > 50, "credit ran out in {starved} of 399");
    assert!(many_bits > 10, "several words of bits in {many_bits} of 399");
    assert!(seen.len() == 2 && seen.values().all(|messages| *messages > 1000), "{seen:?}");
}

/// Whatever stands in a slot is taken in or refused.
#[test]
fn damaged_slots_do_no_harm() {
    let (mut refused, mut taken) = (0, 0);
    for seed in 1..150 {
        let mut random = Random::new(seed);
        let (case, format, messages, _) = compare(&mut random);
        let (mut slices, mut reader) = (case.slices(), Reader::new(format.clone()));
        for mut words in messages.into_iter().take(20) {
            for _ in 0..1 + random.below(3) {
                let at = random.below(words.len().min(40) as u64) as usize;
                words[at] = match random.below(4) {
                    0 => words[at] ^ 1 << random.below(64),
                    1 => words[at].wrapping_add(random.below(3)).wrapping_sub(1),
                    2 => random.below(100) << 32 | random.below(100),
                    _ => u64::MAX >> random.below(64),
                };
            }
            if random.one_in(3) {
                words.truncate(random.below(words.len() as u64) as usize);
            }
            match reader.read(&words, &mut |rows| slices.update_own(&case.grouping, rows)) {
                Ok(_) => taken += 1,
                Err(error) => {
                    assert!(!error.to_string().is_empty());
                    refused += 1;
                    reader = Reader::new(format.clone());
                }
            }
        }
    }
    assert!(refused > 100 && taken > 100, "{refused} refused, {taken} taken in");
}

/// Rows that are passed through come without marks, in whole sections, for windows that have not
/// fired; whatever else stands in a slot is refused.
#[test]
fn only_rows_are_passed_through() {
    let (mut taken, mut refused) = (0, 0);
    for seed in 1..40 {
        let mut random = Random::new(seed);
        let (case, format, messages, _) = compare(&mut random);
        let grouping = &case.grouping;
        for words in messages {
            let mut slices = case.slices();
            // Up to what is no section of rows: a mark, or a part of a long one.
            let (mut rest, mut rows, mut end, mut is_marked) = (&words[..], 0, 0, false);
            let mut only_rows = true;
            while !rest.is_empty() {
                let section = format.next(&mut rest).expect("what a sender has written");
                is_marked |= matches!(section, Section::Mark { .. });
                match section {
                    Section::Rows(section) if only_rows => {
                        (rows, end) = (rows + section.rows, words.len() - rest.len());
                    }
                    _ => only_rows = false,
                }
            }
            let mut take = |words: &[u64], fired: bool| {
                let mut reader = Reader::new(format.clone());
                reader.read_rows(words, &mut |rows| match fired {
                    true => Err(Error::Internal("fired".into())),
                    false => slices.update_own(grouping, rows),
                })
            };
            assert!(take(&words[..end], false).is_ok());
            assert!(end == 0 || take(&words[..end], true).is_err(), "a window that has fired");
            assert!(end == 0 || take(&words[..end - 1], false).is_err(), "half a section");
            if is_marked {
                assert!(take(&words, false).is_err(), "a mark among rows");
                refused += 1;
            }
            taken += rows;
        }
    }
    assert!(taken > 1000 && refused > 30, "{taken} rows taken in, {refused} slots refused");
}

/// What feeds several aggregates goes once, and what no aggregate needs does not go.
#[test]
fn a_row_has_what_is_needed_once() {
    let call = |function, data_type: DataType, nullable| AggregateCall {
        name: String::new(),
        function,
        arguments: match data_type {
            DataType::Null => vec![],
            data_type => vec![Argument { expr: Expr::Column(1), data_type, nullable }],
        },
        filter: None,
        result_type: DataType::Int64,
        frame: String::new(),
    };
    use AggregateFunction::*;
    let words = |aggregates: Vec<AggregateCall>| {
        let key = Key {
            name: "k".into(),
            expr: Expr::Column(0),
            data_type: DataType::Int64,
            nullable: false,
        };
        let (fired, keys) = (Arc::new(Schema::empty()), vec![key]);
        let (window, pairs, having, project) = Default::default();
        let aggregate = Aggregate {
            window,
            windows_in_slice: 1,
            keys,
            aggregates,
            pairs,
            fired,
            having,
            project,
        };
        let grouping = Grouping::new(&aggregate, 0).expect("a good plan");
        Format::new(&grouping.codec, &grouping.aggregates).row_words()
    };
    assert_eq!(words(vec![call(Count, DataType::Null, false)]), 1);
    assert_eq!(words(vec![call(Count, DataType::Float64, true)]), 1);
    let integers = [Sum, Min, Max, Avg].map(|f| call(f, DataType::Int64, true));
    assert_eq!(words(integers.to_vec()), 2);
    // A sum takes a float as it is, an extreme as what has the same order.
    let floats = [Sum, Min, Max, Avg].map(|f| call(f, DataType::Float64, false));
    assert_eq!(words(floats.to_vec()), 3);
    assert_eq!(words(vec![call(Max, DECIMAL, false)]), 3);
}
