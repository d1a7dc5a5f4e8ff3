//! Random joins of two tables, and their right rows: each side's records by window, and then every
//! pair of them looked at.

use std::fmt;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, BooleanArray, RecordBatch};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef, TimestampMillisecondType};
use millstream_contract::Result;
use millstream_contract::expr::{Evaluate, Expr};
use millstream_contract::plan::*;

use super::chain::MS;
use super::{Memory, Random, Record, key, records, table};

/// A record in one of its windows, which starts and ends then (milliseconds).
type Windowed<'a> = ((i64, i64), &'a Record);

/// What is joined, and how.
pub(crate) struct Case {
    sides: [Vec<Vec<Record>>; 2],
    tables: [Arc<Memory>; 2],
    delay_us: [i64; 2],
    pub(crate) lateness_ms: i64,
    pub(crate) kind: JoinKind,
    window: Option<Window>,
    /// Keys: the number and the name of a record, or one of them, or none.
    keys: Vec<usize>,
    nulls_are_equal: bool,
    /// The side whose rows all leaders have.
    broadcast: Option<usize>,
    condition: bool,
    /// Whether both sides are one table, which is read once.
    is_self_join: bool,
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lengths = |side: &Vec<Vec<Record>>| side.iter().map(Vec::len).collect::<Vec<_>>();
        let lengths = [lengths(&self.sides[0]), lengths(&self.sides[1])];
        let Case { delay_us, lateness_ms, kind, window, keys, .. } = self;
        write!(
            f,
            "{kind:?} {window:?} keys {keys:?}, nulls equal {}, broadcast {:?}, condition {}, \
             records {lengths:?}, delays {delay_us:?}, lateness {lateness_ms} ms, of one table {}",
            self.nulls_are_equal, self.broadcast, self.condition, self.is_self_join
        )
    }
}

/// Whether the left side's amount is less than the right side's.
#[derive(Debug)]
struct Less {
    left: usize,
    right: usize,
}

impl fmt::Display for Less {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "column {} < column {}", self.left, self.right)
    }
}

impl Evaluate for Less {
    fn evaluate(&self, batch: &RecordBatch) -> Result<ArrayRef> {
        let [left, right] =
            [self.left, self.right].map(|c| batch.column(c).as_primitive::<Int64Type>().clone());
        let less = left.iter().zip(&right).map(|(left, right)| Some(left? < right?));
        Ok(Arc::new(less.collect::<BooleanArray>()))
    }
    fn data_type(&self) -> &DataType {
        &DataType::Boolean
    }
}

/// Whether all of these are true.
#[derive(Debug)]
struct All(Vec<Expr>);

impl fmt::Display for All {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "all of {}", self.0.len())
    }
}

impl Evaluate for All {
    fn evaluate(&self, batch: &RecordBatch) -> Result<ArrayRef> {
        let mut all = BooleanArray::from(vec![true; batch.num_rows()]);
        for expr in &self.0 {
            all = arrow::compute::and_kleene(&all, expr.evaluate(batch)?.as_boolean())?;
        }
        Ok(Arc::new(all))
    }
    fn data_type(&self) -> &DataType {
        &DataType::Boolean
    }
}

/// Whether the other side's time is so far from the anchor side's.
#[derive(Debug)]
struct Within(Interval);

impl fmt::Display for Within {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "within {:?}", self.0)
    }
}

impl Evaluate for Within {
    fn evaluate(&self, batch: &RecordBatch) -> Result<ArrayRef> {
        let times = [0, 5]
            .map(|column| batch.column(column).as_primitive::<TimestampMillisecondType>().clone());
        let (anchor, other) = (&times[self.0.anchor], &times[1 - self.0.anchor]);
        let pairs = anchor.iter().zip(other);
        let within = pairs.map(|(anchor, other)| Some(are_near(&self.0, anchor?, other?)));
        Ok(Arc::new(within.collect::<BooleanArray>()))
    }
    fn data_type(&self) -> &DataType {
        &DataType::Boolean
    }
}

/// Whether rows with these times, in milliseconds, may meet.
fn are_near(interval: &Interval, anchor_ms: i64, other_ms: i64) -> bool {
    let (first, last) = (-interval.before_us, interval.after_us);
    (first..=last).contains(&((other_ms - anchor_ms) * 1000))
}

/// A kind of join, and windows or an interval that go with it.
fn any_window(random: &mut Random) -> (JoinKind, Option<Window>) {
    use JoinKind::*;
    let ms = |random: &mut Random, of: &[i64]| of[random.below(of.len() as u64) as usize] * 1000;
    let size_us = ms(random, &[50, 333, 1000]);
    let slide_us = ms(random, &[50, 100]);
    let count = 1 + random.below(5) as i64;
    let offset_us = ms(random, &[0, 20]);
    let kinds = [Inner, Left, Right, Full, LeftSemi, LeftAnti];
    let mut kind = kinds[random.below(6) as usize];
    let window = match random.below(7) {
        5.. => {
            let anchor = match kind {
                Right => 1,
                Inner => random.below(2) as usize,
                _ => 0,
            };
            if kind == Full {
                kind = Left;
            }
            let before_us = ms(random, &[-150, 0, 0, 40, 300, 1000, 25_000]);
            let after_us = ms(random, &[-40, 0, 0, 70, 500]).max(-before_us);
            Some(Window::Interval(Interval { anchor, before_us, after_us }))
        }
        0 => None,
        1 => Some(Window::Hop(Hop { slide_us, size_us: count * slide_us, offset_us })),
        2 => Some(Window::Cumulate(Cumulate {
            step_us: slide_us,
            size_us: count * slide_us,
            offset_us,
        })),
        _ => Some(Window::Tumble(Tumble { size_us, offset_us })),
    };
    (kind, window)
}

/// A side's columns.
fn columns() -> [Field; 5] {
    [
        Field::new("ts", MS, true),
        Field::new("key", DataType::Int64, true),
        Field::new("name", DataType::Utf8, false),
        Field::new("amount", DataType::Int64, true),
        Field::new("price", DataType::Float64, false),
    ]
}

impl Case {
    /// Everything follows from chance.
    pub(crate) fn any(random: &mut Random) -> Case {
        let key_count = [1, 7, 60, 100_000][random.below(4) as usize];
        let mut side = || {
            let splits = 1 + random.below(3) as usize;
            let per_split = [0, 1, 30, 150][random.below(4) as usize];
            let mut data = records(random, splits, per_split, key_count);
            if random.below(6) == 0 {
                // Longer than a slot, and than a buffer.
                let long = "x".repeat([2_000, 70_000][random.below(2) as usize]);
                data.iter_mut()
                    .flatten()
                    .step_by(17)
                    .for_each(|record| record.name.push_str(&long));
            }
            let batch_rows = [1, 20, 100][random.below(3) as usize];
            let table = table(&data, random, batch_rows);
            (data, table, [0, 1, 100_000, 2_000_000][random.below(4) as usize])
        };
        let ((left, left_table, left_delay), mut right) = (side(), side());
        let is_self_join = random.below(4) == 0;
        if is_self_join {
            right = (left.clone(), left_table.clone(), left_delay);
        }
        let (right, right_table, right_delay) = right;
        let (kind, window) = any_window(random);
        let keys = [vec![1], vec![1, 2], vec![2], vec![2, 1], vec![1], vec![]];
        let mut keys = keys[random.below(6) as usize].clone();
        if window.is_none() && keys.is_empty() {
            // Too many pairs.
            keys = vec![1];
        }
        let side = random.below(4) as usize;
        let broadcast = (side < 2 && kind.may_broadcast(side)).then_some(side);
        Case {
            sides: [left, right],
            tables: [left_table, right_table],
            delay_us: [left_delay, right_delay],
            lateness_ms: [0, 0, 400][random.below(3) as usize],
            kind,
            window,
            keys,
            nulls_are_equal: random.below(4) == 0,
            broadcast,
            condition: random.below(3) == 0,
            is_self_join,
        }
    }

    fn bounds(&self) -> usize {
        if self.window.is_some_and(|window| window.has_columns()) { 3 } else { 0 }
    }

    /// What must be true of a pair besides its keys.
    fn condition(&self) -> Option<Expr> {
        let amount = self.bounds() + 3;
        let less = || Expr::Computed(Arc::new(Less { left: amount, right: amount + 5 }));
        let mut all: Vec<Expr> = self.condition.then(less).into_iter().collect();
        if let Some(Window::Interval(interval)) = self.window {
            all.push(Expr::Computed(Arc::new(Within(interval))));
        }
        (!all.is_empty()).then(|| Expr::Computed(Arc::new(All(all))))
    }

    fn schema(&self, left: bool, right: bool, both: bool) -> SchemaRef {
        let bounds =
            ["window_start", "window_end", "window_time"].map(|n| Field::new(n, MS, false));
        let mut fields: Vec<Field> = bounds.into_iter().take(self.bounds()).collect();
        let side = |may_be_null: bool| {
            columns().map(|field| {
                let nullable = field.is_nullable() || may_be_null;
                field.with_nullable(nullable)
            })
        };
        fields.extend(side(left));
        if both {
            fields.extend(side(right));
        }
        let names = fields.into_iter().enumerate();
        Arc::new(Schema::new(names.map(|(i, f)| f.with_name(format!("c{i}"))).collect::<Vec<_>>()))
    }

    pub(crate) fn plan(&self) -> Plan {
        let source = |side: usize| Source {
            name: ["left", "right"][side].into(),
            schema: Arc::new(Schema::new(columns().to_vec())),
            projection: (0..5).collect(),
            derived: vec![],
            event_time: Some(EventTime {
                column: 0,
                watermark: Watermark::Delay(self.delay_us[side]),
                idle_timeout_us: None,
                zone: None,
            }),
            table: self.tables[side].clone(),
        };
        let (keeps_left, keeps_right) = (self.kind.keeps_left(), self.kind.keeps_right());
        let both = self.kind.gives_pairs();
        let fired = self.schema(both && keeps_right, keeps_left, both);
        let key = |column: &usize| {
            let field = &columns()[*column];
            let key = || key(field.name(), *column, field.data_type().clone(), field.is_nullable());
            [key(), key()]
        };
        let join = Join {
            kind: self.kind,
            window: self.window,
            left_inputs: 1,
            left_columns: 5,
            keys: self.keys.iter().map(key).collect(),
            as_of: false,
            nulls_are_equal: self.nulls_are_equal,
            broadcast: self.broadcast,
            condition: self.condition(),
            time: match self.window {
                Some(Window::Interval(interval)) => Some(5 * interval.anchor),
                _ => None,
            },
            pair: self.schema(false, false, true),
            fired: fired.clone(),
            having: None,
            project: (0..fired.fields().len()).map(Expr::Column).collect(),
        };
        let (sources, right) = match self.is_self_join {
            true => (vec![source(0)], Input { again: true, ..Input::all(Node::Source(0)) }),
            false => (vec![source(0), source(1)], Input::all(Node::Source(1))),
        };
        Plan {
            sources,
            stages: vec![Stage {
                names: vec![],
                inputs: vec![Input::all(Node::Source(0)), right],
                operator: Operator::Join(Box::new(join)),
                output: fired,
            }],
            outputs: vec![Output::of(0)],
        }
    }

    /// The windows of a record, by where they start and end, in milliseconds.
    fn windows_of(&self, ts_ms: i64) -> Vec<(i64, i64)> {
        let Some(window) = self.window else { return vec![(0, 0)] };
        match window {
            Window::Tumble(Tumble { size_us, offset_us }) => {
                let (size, offset) = (size_us / 1000, offset_us / 1000);
                let start = (ts_ms - offset).div_euclid(size) * size + offset;
                vec![(start, start + size)]
            }
            Window::Hop(Hop { slide_us, size_us, offset_us }) => {
                let (slide, size, offset) = (slide_us / 1000, size_us / 1000, offset_us / 1000);
                let last = (ts_ms - offset).div_euclid(slide) * slide + offset;
                let starts = (0..size / slide).map(|i| last - i * slide);
                starts.map(|start| (start, start + size)).collect()
            }
            Window::Cumulate(Cumulate { step_us, size_us, offset_us }) => {
                let (step, size, offset) = (step_us / 1000, size_us / 1000, offset_us / 1000);
                let start = (ts_ms - offset).div_euclid(size) * size + offset;
                let ends = (1..=size / step).map(|i| start + i * step);
                ends.filter(|end| *end > ts_ms).map(|end| (start, end)).collect()
            }
            Window::Interval(_) => vec![(0, 0)],
            Window::Session(_) => panic!("no sessions of records"),
        }
    }

    /// A side's records, once for each of their windows; how many records are late for
    /// all, and how many have no time.
    fn side(&self, number: usize) -> (Vec<Windowed<'_>>, u64, u64) {
        let (mut rows, mut late, mut null_time) = (Vec::new(), 0, 0);
        for split in &self.sides[number] {
            let mut watermark = i64::MIN;
            for record in split {
                let before = watermark;
                if let Some(ts) = record.ts_ms {
                    watermark = watermark.max(ts * 1000 - self.delay_us[number]);
                }
                let ts = match (record.ts_ms, self.window) {
                    (Some(ts), _) => ts,
                    (None, None) => 0,
                    (None, Some(_)) => {
                        null_time += 1;
                        continue;
                    }
                };
                let mut windows = self.windows_of(ts);
                if let Some(Window::Interval(_)) = self.window {
                    windows.retain(|_| (ts + self.lateness_ms) * 1000 >= before);
                } else if self.window.is_some() {
                    windows.retain(|(_, end)| (end + self.lateness_ms) * 1000 > before);
                }
                late += u64::from(windows.is_empty());
                rows.extend(windows.into_iter().map(|window| (window, record)));
            }
        }
        (rows, late, null_time)
    }

    /// If one side's rows go to all leaders, how many these are: each once for each of its slices,
    /// without those that have no partner for sure, since a key is NULL.
    pub(crate) fn broadcast_rows(&self) -> Option<u64> {
        let may_match =
            |row: &Record| self.nulls_are_equal || row.key.is_some() || !self.keys.contains(&1);
        let side = self.broadcast?;
        let (rows, ..) = self.side(side);
        let rows = rows.into_iter().filter(|(_, row)| may_match(row));
        Some(rows.map(|(_, row)| self.slices_of(side, row)).sum())
    }

    /// To how many slices a row is appended in each of its windows: to one, but if it is not of the
    /// anchor side of an interval join, to all where it may have a partner.
    fn slices_of(&self, side: usize, row: &Record) -> u64 {
        match (self.window, row.ts_ms) {
            (Some(Window::Interval(interval)), Some(ts_ms)) if side != interval.anchor => {
                let slice_of = |us: i64| us.div_euclid(interval.slice_us());
                let (first, last) =
                    (ts_ms * 1000 - interval.after_us, ts_ms * 1000 + interval.before_us);
                (slice_of(last) - slice_of(first) + 1) as u64
            }
            _ => 1,
        }
    }

    /// The rows, sorted; how many records are late, and how many have no time.
    pub(crate) fn expected(&self) -> (Vec<String>, u64, u64) {
        let ((left, late, null), (right, right_late, right_null)) = (self.side(0), self.side(1));
        let mut lines = Vec::new();
        let mut has_partner = vec![false; right.len()];
        for (window, row) in &left {
            let mut partners = 0;
            for (at, (_, other)) in
                right.iter().enumerate().filter(|(_, (other, _))| other == window)
            {
                if !self.are_pair(row, other) {
                    continue;
                }
                partners += 1;
                has_partner[at] = true;
                if self.kind.gives_pairs() {
                    lines.push(self.line(*window, Some(row), Some(other)));
                }
            }
            let given = match self.kind {
                JoinKind::LeftSemi => partners > 0,
                kind => partners == 0 && kind.keeps_left(),
            };
            if given {
                lines.push(self.line(*window, Some(row), None));
            }
        }
        for ((window, row), _) in
            right.iter().zip(has_partner).filter(|(_, has)| !has && self.kind.keeps_right())
        {
            lines.push(self.line(*window, None, Some(row)));
        }
        lines.sort();
        match self.is_self_join {
            true => (lines, late, null),
            false => (lines, late + right_late, null + right_null),
        }
    }

    fn are_pair(&self, left: &Record, right: &Record) -> bool {
        let equal = |column: &usize| match column {
            1 if self.nulls_are_equal => left.key == right.key,
            1 => left.key.is_some() && left.key == right.key,
            _ => left.name == right.name,
        };
        let less = || left.amount.zip(right.amount).is_some_and(|(left, right)| left < right);
        let near = || match (self.window, left.ts_ms.zip(right.ts_ms)) {
            (Some(Window::Interval(interval)), Some((left, right))) => match interval.anchor {
                0 => are_near(&interval, left, right),
                _ => are_near(&interval, right, left),
            },
            _ => true,
        };
        self.keys.iter().all(equal) && (!self.condition || less()) && near()
    }

    fn line(
        &self,
        (start, end): (i64, i64),
        left: Option<&Record>,
        right: Option<&Record>,
    ) -> String {
        let mut cells = Vec::new();
        if self.bounds() > 0 {
            cells.extend([start, end, end - 1].map(super::time_text));
        }
        let side = |row: Option<&Record>| -> Vec<String> {
            let Some(row) = row else { return vec![String::new(); 5] };
            let number = |value: Option<i64>| value.map_or(String::new(), |v| v.to_string());
            let ts = row.ts_ms.map_or(String::new(), super::time_text);
            let price = format!("{:?}", row.price);
            vec![ts, number(row.key), row.name.clone(), number(row.amount), price]
        };
        cells.extend(side(left));
        if self.kind.gives_pairs() {
            cells.extend(side(right));
        }
        cells.join("|")
    }
}
