//! Saved rows of slices: an operator that is given them back goes on with the same rows.

use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray, StructArray};
use arrow::datatypes::{DataType, Field, Fields, Schema, SchemaRef, TimeUnit};
use arrow::util::display::array_value_to_string;
use millstream_contract::error::Result;
use millstream_contract::expr::Expr;
use millstream_contract::plan::*;
use millstream_operators::event_time::{BEGINNING, END};
use millstream_operators::operator::{
    Batch, Delta, Leadership, Operator, Program, Room, RowTimes, Rows, SavedRows, Step, aggregate,
    join,
};
use millstream_operators::passed::Reader;
use millstream_operators::windowing::{Fate, SliceId};
use millstream_state::Arena;
use random::Random;

#[path = "support/random.rs"]
mod random;

const MS: i64 = 1000;

/// The columns of a row: two keys, and values.
const COLUMNS: [(&str, DataType); 5] = [
    ("number", DataType::Int64),
    ("name", DataType::Utf8),
    ("value", DataType::Int64),
    ("float", DataType::Float64),
    ("text", DataType::Utf8),
];

/// The columns of a row that is ranked by the first.
const RANKED: [usize; 3] = [2, 4, 3];

/// The number of a row that has none in an order.
const UNORDERED: &str = "number of a row";

/// The time of a row, and numbers from which its values are made.
type Row = (i64, [u64; 4]);

/// Rows with their times, and the input that they are of.
struct Chunk {
    input: usize,
    rows: Vec<Row>,
    watermark: i64,
}

/// Rows in about the order of time; `keys` numbers.
fn chunks(random: &mut Random, count: usize, keys: u64, inputs: u64, step_us: u64) -> Vec<Chunk> {
    let mut now = 0;
    let mut chunk = |_| {
        let row = |random: &mut Random, now: i64| {
            // Some come late for windows that have fired.
            let late_us = if random.one_in(10) { 20 * step_us } else { step_us };
            let time = now - random.below(late_us) as i64;
            let values = [random.below(keys), random.below(3), random.below(40), random.below(9)];
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

fn batch(rows: &[Row], scale: i64) -> RecordBatch {
    let of = |n: usize| rows.iter().map(move |(_, values)| values[n]);
    let ints = |n: usize, scale: i64| -> ArrayRef {
        Arc::new(Int64Array::from_iter_values(of(n).map(|v| v as i64 * scale)))
    };
    let name = |v: u64| ["", "short", "a name that is longer than a word"][v as usize];
    let float = of(2).map(|v| (v % 5 > 0).then(|| 1e17 / (v as f64 + 1.0) - 3e15));
    let columns: [ArrayRef; 5] = [
        ints(0, scale),
        Arc::new(StringArray::from_iter_values(of(1).map(name))),
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

/// An operator with the rows that it has fired.
struct Run {
    program: Arc<dyn Program>,
    /// Of a batch, what it has.
    columns: Vec<usize>,
    operator: Box<dyn Operator>,
    frontier: i64,
    fired: Vec<Vec<String>>,
    /// How many slices were saved, and how many of these had fired.
    saved: [usize; 2],
}

impl Run {
    fn new(program: &Arc<dyn Program>, inputs: u64) -> Run {
        let (program, frontier, fired) = (program.clone(), BEGINNING, vec![]);
        let operator = start(&program);
        // A join knows the columns of its sides alone.
        let columns = (0..COLUMNS.len() + usize::from(inputs == 1)).collect();
        Run { program, columns, operator, frontier, fired, saved: [0; 2] }
    }

    fn take(&mut self, chunk: &Chunk, scale: i64) -> Result<()> {
        let windowing = self.program.windowing();
        let mut of_slices: Vec<(SliceId, Vec<Row>)> = Vec::new();
        for row in &chunk.rows {
            let bounds = windowing.slice_of(row.0);
            let slice = match windowing.fate(&bounds, row.0, self.frontier) {
                Fate::InTime => bounds.slice,
                Fate::Partly(slice) => slice,
                Fate::Late => continue,
            };
            match of_slices.iter_mut().find(|(known, _)| *known == slice) {
                Some((_, rows)) => rows.push(*row),
                None => of_slices.push((slice, vec![*row])),
            }
        }
        for (slice, rows) in of_slices {
            let times = RowTimes::Each(rows.iter().map(|(time, _)| *time).collect());
            let (all, columns) = (batch(&rows, scale), &self.columns);
            let rows = &all.project(columns).expect("columns of it");
            let rows = Rows::Fired { rows, slice, times: &times };
            self.operator
                .update(&Batch { input: chunk.input, rows, filter: None, bytes: 0 }, None)?;
        }
        self.fire(chunk.watermark)
    }

    /// Fires all windows that are complete.
    fn fire(&mut self, clock: i64) -> Result<()> {
        while let Some(window) = self.operator.complete(self.frontier, clock) {
            let mut fired = vec![];
            if self.operator.fire(window) {
                loop {
                    let (rows, over) = match self.operator.step()? {
                        Step::Rows { rows, last, .. } => (rows, last),
                        Step::Working => continue,
                        Step::Over => break,
                    };
                    let text = |row| {
                        let columns = rows.columns().iter();
                        columns.map(move |c| array_value_to_string(c, row).expect("a value") + "|")
                    };
                    fired.extend((0..rows.num_rows()).map(|row| text(row).collect::<String>()));
                    if over {
                        break;
                    }
                }
                self.operator.end_firing();
            }
            fired.sort();
            self.fired.extend((!fired.is_empty()).then_some(fired));
            self.frontier = self.program.windowing().fires_at(window);
        }
        self.frontier = self.frontier.max(clock);
        Ok(())
    }

    /// Goes on with another operator, which has nothing but the saved words.
    fn restart(&mut self) -> Result<()> {
        let windowing = self.program.windowing();
        let mut next = start(&self.program);
        let mut reader = self.program.format().map(|format| Reader::new(format.clone()));
        for slice in self.operator.saved() {
            self.saved[0] += 1;
            let first = windowing.windows_of(slice).next();
            let has_fired = first.is_some_and(|first| windowing.fires_at(first) <= self.frontier);
            self.saved[1] += usize::from(has_fired);
            for rows in self.operator.rows(slice)? {
                match rows {
                    SavedRows::State(words, arena) => {
                        let arena = &Arena::from_words(arena.all_words().to_vec());
                        next.merge(slice, Delta::Words { words: &words, arena })?;
                    }
                    SavedRows::Passed(words) => {
                        let reader = reader.as_mut().expect("a format of passed rows");
                        reader.read_rows(&words, &mut |rows| next.take_in(rows))?;
                    }
                }
            }
        }
        next.resume(&windowing, self.frontier)?;
        self.operator = next;
        Ok(())
    }
}

fn start(program: &Arc<dyn Program>) -> Box<dyn Operator> {
    let leadership = Leadership { me: 0, leaders: 1, of_empty_key: true };
    let (pool_bytes, buffer_bytes) = (1 << 16, 1 << 12);
    let room = Room { pool_bytes, buffer_bytes, keeps_slices: true, ..Room::default() };
    program.clone().start(leadership, room)
}

/// Runs with the same rows, with restarts and without; the slices that were saved.
fn compare(program: &Arc<dyn Program>, inputs: u64, step_us: u64, seed: u64) -> [usize; 2] {
    let mut random = Random::new(seed);
    let keys = random.pick(&[3, 40, 1000]);
    // Numbers far apart are found by their hashes.
    let scale = random.pick(&[1, 1 << 40]);
    let restarts = random.pick(&[2, 5, 15]);
    let (mut whole, mut parts) = (Run::new(program, inputs), Run::new(program, inputs));
    let count = if inputs > 1 { 40 } else { 60 };
    for chunk in chunks(&mut random, count, keys, inputs, step_us) {
        whole.take(&chunk, scale).expect("rows that fit");
        parts.take(&chunk, scale).expect("rows that fit");
        assert_eq!(whole.frontier, parts.frontier);
        if random.one_in(restarts) {
            parts.restart().expect("rows that were saved");
        }
    }
    whole.fire(END).expect("rows");
    parts.fire(END).expect("rows");
    assert!(whole.fired.iter().flatten().count() > 1, "{} with seed {seed}", program.name());
    for (one, other) in whole.fired.iter().zip(&parts.fired) {
        assert_eq!(one, other, "{} with seed {seed}", program.name());
    }
    assert_eq!(whole.fired.len(), parts.fired.len(), "{} with seed {seed}", program.name());
    parts.operator.end();
    assert!(parts.operator.saved().is_empty(), "{} with seed {seed}", program.name());
    parts.saved
}

fn key(column: usize) -> Key {
    let (name, data_type) = COLUMNS[column].clone();
    Key { name: name.into(), expr: Expr::Column(column), data_type, nullable: true }
}

fn call(function: AggregateFunction, columns: &[usize], result_type: DataType) -> AggregateCall {
    let argument = |column: &usize| Argument {
        expr: Expr::Column(*column),
        data_type: COLUMNS[*column].1.clone(),
        nullable: true,
    };
    AggregateCall {
        name: format!("{function:?}"),
        function,
        arguments: columns.iter().map(argument).collect(),
        filter: None,
        result_type,
        frame: String::new(),
    }
}

/// Sums, extremes, lists, sketches, and values in the order of records.
fn calls() -> Vec<AggregateCall> {
    use AggregateFunction::*;
    let list = DataType::List(Arc::new(Field::new_list_field(DataType::Utf8, true)));
    vec![
        call(Count, &[], DataType::Int64),
        call(Sum, &[2], DataType::Int64),
        call(Sum, &[3], DataType::Float64),
        call(Min, &[4], DataType::Utf8),
        call(ArrayAgg { nulls: false, distinct: true }, &[4], list),
        call(ApproxCountDistinct, &[2], DataType::Int64),
        call(Last { nulls: false }, &[3], DataType::Float64),
    ]
}

/// Fields of windows, keys and others.
fn schema(windows: bool, fields: impl IntoIterator<Item = (String, DataType)>) -> SchemaRef {
    let time = DataType::Timestamp(TimeUnit::Millisecond, None);
    let window = |name: &str| (name.to_string(), time.clone());
    let windows = ["window_start", "window_end", "window_time"].iter().filter(|_| windows);
    let all = windows.map(|name| window(name)).chain(fields);
    Arc::new(Schema::new(all.map(|(name, of)| Field::new(name, of, true)).collect::<Fields>()))
}

fn aggregate(
    window: Window,
    windows_in_slice: i64,
    keys: &[usize],
    calls: Vec<AggregateCall>,
    lateness_us: i64,
) -> Arc<dyn Program> {
    let names =
        keys.iter().map(|column| (COLUMNS[*column].0.to_string(), COLUMNS[*column].1.clone()));
    let results = calls.iter().flat_map(|call| match &call.result_type {
        DataType::Struct(of) => {
            of.iter().map(|f| (f.name().clone(), f.data_type().clone())).collect()
        }
        other => vec![(call.name.clone(), other.clone())],
    });
    let fired = schema(true, names.chain(results));
    let is_shown = |column: &usize| fired.field(*column).name() != UNORDERED;
    let shown: Vec<usize> = (0..fired.fields().len()).filter(is_shown).collect();
    let aggregate = Aggregate {
        windows_in_slice,
        pairs: None,
        window: Some(window),
        keys: keys.iter().map(|column| key(*column)).collect(),
        aggregates: calls,
        project: shown.iter().map(|column| Expr::Column(*column)).collect(),
        fired: fired.clone(),
        having: None,
    };
    let output = Arc::new(fired.project(&shown).expect("columns of it"));
    Arc::new(
        aggregate::AggregateProgram::new(&aggregate, lateness_us, &output).expect("a good plan"),
    )
}

/// Windows of one slice and of several, and slices of several windows or parts of them.
#[test]
fn aggregates_go_on_from_saved_rows() {
    let hop = |size: i64| {
        Window::Hop(Hop { slide_us: 10 * MS, size_us: size * 10 * MS, offset_us: 3 * MS })
    };
    let cumulate = Window::Cumulate(Cumulate { step_us: 10 * MS, size_us: 70 * MS, offset_us: MS });
    let tumble = Window::Tumble(Tumble { size_us: 10 * MS, offset_us: 0 });
    let mut seed = 0;
    for (window, packs) in [(hop(3), 7), (hop(20), 4), (hop(20), 50), (cumulate, 5), (tumble, 6)] {
        let mut saved = [0; 2];
        for windows_in_slice in [1, packs] {
            for keys in [&[0][..], &[1], &[1, 0], &[]] {
                for calls in [calls(), calls()[..2].to_vec()] {
                    seed += 1;
                    let lateness_us = [0, 15 * MS][seed as usize % 2];
                    let program = aggregate(window, windows_in_slice, keys, calls, lateness_us);
                    let own = compare(&program, 1, 25 * MS as u64, seed);
                    saved = [saved[0] + own[0], saved[1] + own[1]];
                }
            }
        }
        assert!(saved[0] > 300 && (saved[1] > 100 || window == tumble), "{window:?}: {saved:?}");
    }
}

/// The first rows of each group in an order, or all of them in no order.
fn ranked(ranking: Ranking) -> Vec<AggregateCall> {
    let all = ranking == Ranking::All;
    let (limit, keys) = if all { (u32::MAX, 0) } else { (3, 1) };
    let directions = Directions { descending: u64::from(keys), nulls_last: 0 };
    let best = Best { limit, ranking, keys, directions, keeps_last: false };
    let field = |(name, of): &(&str, DataType)| Field::new(*name, of.clone(), true);
    let row = RANKED.map(|column| field(&COLUMNS[column])).to_vec();
    let rank = field(&(if all { UNORDERED } else { "rank" }, DataType::Int64));
    let result = [&row[usize::from(keys)..], &[rank]].concat();
    let data_type = DataType::Struct(row.into());
    let argument = Argument { expr: Expr::Column(COLUMNS.len()), data_type, nullable: true };
    let call = call(AggregateFunction::Best(best), &[], DataType::Struct(result.into()));
    vec![AggregateCall { arguments: vec![argument], ..call }]
}

/// Rankings in windows that hop.
#[test]
fn rankings_go_on_from_saved_rows() {
    let window = Window::Hop(Hop { slide_us: 10 * MS, size_us: 50 * MS, offset_us: 0 });
    for (seed, ranking) in
        [Ranking::RowNumber, Ranking::Rank, Ranking::DenseRank].iter().enumerate()
    {
        for windows_in_slice in [1, 6] {
            let program = aggregate(window, windows_in_slice, &[1], ranked(*ranking), 0);
            let saved = compare(&program, 1, 25 * MS as u64, seed as u64);
            assert!(saved[1] > 1, "{ranking:?}: {saved:?}");
        }
    }
}

/// Sessions of groups by themselves and shared ones, with parts in slices of their own and packed.
#[test]
fn sessions_go_on_from_saved_rows() {
    let mut seed = 0;
    let mut saved = [0; 2];
    for (keys, partition) in [(&[0][..], 1), (&[1], 1), (&[1, 0], 2), (&[1, 0], 1), (&[1, 0], 0)] {
        for (slices_of_gap, windows_in_slice) in [(4, 1), (1, 1), (1, 6)] {
            if windows_in_slice > 1 && partition < keys.len() {
                continue;
            }
            for calls in [calls(), calls()[..2].to_vec(), ranked(Ranking::All)] {
                seed += 1;
                let gap_us = [4, 20, 90][seed as usize % 3] * MS;
                let window = Window::Session(Session { gap_us, partition, slices_of_gap });
                let lateness_us = [0, 15 * MS][seed as usize % 2];
                let program = aggregate(window, windows_in_slice, keys, calls, lateness_us);
                let own = compare(&program, 1, 25 * MS as u64, seed);
                saved = [saved[0] + own[0], saved[1] + own[1]];
            }
        }
    }
    assert!(saved[1] > 100, "{saved:?}");
}

fn joined(kind: JoinKind, window: Option<Window>, as_of: bool, keys: &[usize]) -> Arc<dyn Program> {
    let windowed = window.is_some_and(|window| window.has_columns());
    let side = |side| move |(name, of): &(&str, DataType)| (format!("{side} {name}"), of.clone());
    let pair =
        schema(windowed, COLUMNS.iter().map(side("left")).chain(COLUMNS.iter().map(side("right"))));
    let join = Join {
        kind,
        window,
        left_inputs: 1,
        left_columns: COLUMNS.len(),
        keys: keys.iter().map(|column| [key(*column), key(*column)]).collect(),
        as_of,
        nulls_are_equal: false,
        broadcast: None,
        condition: None,
        time: None,
        having: None,
        project: (0..pair.fields().len()).map(Expr::Column).collect(),
        fired: pair.clone(),
        pair: pair.clone(),
    };
    Arc::new(join::JoinProgram::new(&join, 0, &pair).expect("a good plan"))
}

/// Joins of windows, of intervals, and with the last version of a key.
#[test]
fn joins_go_on_from_saved_rows() {
    let tumble = Window::Tumble(Tumble { size_us: 60 * MS, offset_us: 0 });
    let interval = Window::Interval(Interval { anchor: 0, before_us: 50 * MS, after_us: 70 * MS });
    let as_of = Window::Interval(Interval::AS_OF);
    for (kind, window, is_as_of) in [
        (JoinKind::Full, Some(tumble), false),
        (JoinKind::Inner, None, false),
        (JoinKind::Left, Some(interval), false),
        (JoinKind::Left, Some(as_of), true),
        (JoinKind::Inner, Some(as_of), true),
    ] {
        let mut saved = [0; 2];
        for seed in 0..6 {
            let keys = [&[0][..], &[1, 0], &[1]][seed as usize % 3];
            let program = joined(kind, window, is_as_of, keys);
            let own = compare(&program, 2, 50 * MS as u64, seed);
            saved = [saved[0] + own[0], saved[1] + own[1]];
        }
        assert!(saved[0] > 20 && (saved[1] > 10 || !is_as_of), "{window:?}: {saved:?}");
    }
}
