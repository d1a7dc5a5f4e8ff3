//! Rows are conserved: of the records before a cut, each that counts is in exactly one place. The
//! counts in saved state, in rows that wait, and in rows that outputs have make up the records that
//! were taken in, less those that a filter, a late time or a missing time has left out.
//!
//! Counted for queries in which each record counts once for each stage: groups with `COUNT(*)` over
//! the records of a table, in tumbling windows, in sessions, or over the whole input.

use std::sync::Arc;
use std::task::Waker;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{Int64Type, TimestampMillisecondType};
use millstream_contract::expr::Expr;
use millstream_contract::plan::*;
use millstream_contract::table::{OpenOptions, SplitPoll};
use millstream_engine::Resume;

use super::cuts::CutBatch;
use super::queries::Query;
use crate::support::chain::AtLeast;
use crate::support::*;

/// Counts of the records of a split before one of its chunks.
#[derive(Debug, Clone, Copy, Default)]
struct Before {
    records: u64,
    /// Of all stages: records that pass the filter; of these, without a time and late.
    passing: u64,
    null_time: u64,
    late: u64,
}

impl Before {
    fn add(&mut self, other: Before) {
        self.records += other.records;
        self.passing += other.passing;
        self.null_time += other.null_time;
        self.late += other.late;
    }
}

/// A stage that counts records.
#[derive(Debug)]
struct Counter {
    number: usize,
    filter: Option<Expr>,
    window: Option<Window>,
    /// The column of the count in saved state.
    column: String,
    /// Its place in the stage's rows.
    place: usize,
}

/// What must be conserved.
#[derive(Debug)]
pub(crate) struct Counting {
    /// For messages.
    what: String,
    stages: Vec<Counter>,
    /// By split: what is before each chunk, and before the end.
    splits: Vec<Vec<Before>>,
    /// Whether it follows from the input alone which records are late.
    knows_late: bool,
}

/// Counts at a cut, or sums of them.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counted {
    pub(crate) cuts: u64,
    pub(crate) in_state: u64,
    pub(crate) waiting: u64,
    pub(crate) fired: u64,
    pub(crate) late: u64,
    pub(crate) filtered: u64,
}

impl Counted {
    pub(crate) fn add(&mut self, other: Counted) {
        self.cuts += other.cuts;
        self.in_state += other.in_state;
        self.waiting += other.waiting;
        self.fired += other.fired;
        self.late += other.late;
        self.filtered += other.filtered;
    }

    /// What must have happened.
    pub(crate) fn happened(&self, seeds: u64) {
        let Counted { cuts, in_state, waiting, fired, late, filtered } = *self;
        happened(
            seeds,
            &[
                ("cuts whose rows were counted", cuts),
                ("records in saved state", in_state),
                ("records in rows that wait", waiting),
                ("records in rows of outputs", fired),
                ("records that were late", late),
                ("records that were filtered", filtered),
            ],
        );
    }
}

impl Counter {
    /// A stage that counts the records of the only table.
    fn new(number: usize, stage: &Stage) -> Option<Counter> {
        let [Input { from: Node::Source(0), late: None, filter, .. }] = &stage.inputs[..] else {
            return None;
        };
        let Operator::Aggregate(aggregate) = &stage.operator else { return None };
        let Aggregate { window, keys, aggregates, fired, project, .. } = aggregate;
        let is_disjoint = matches!(window, None | Some(Window::Tumble(_) | Window::Session(_)));
        let count = aggregates.first().filter(|call| {
            call.function == AggregateFunction::Count
                && call.arguments.is_empty()
                && call.filter.is_none()
        });
        let counts = count.is_some() && aggregate.having.is_none() && aggregate.pairs.is_none();
        let bounds = if window.is_some() { 3 } else { 0 };
        let column = bounds + keys.len();
        let is_it = |expr: &Expr| matches!(expr, Expr::Column(of) if *of == column);
        let place = project.iter().position(is_it).filter(|_| counts && is_disjoint)?;
        let column = fired.field(column).name().clone();
        Some(Counter { number, filter: filter.clone(), window: *window, column, place })
    }

    /// Counts a record: whether it passes the filter, its time, and the watermark before it.
    fn count(&self, passes: bool, ms: Option<i64>, watermark_us: i64, lateness_us: i64) -> Before {
        let late = match (&self.window, ms) {
            (Some(Window::Tumble(of)), Some(ms)) => {
                let end = (ms * 1000 - of.offset_us).div_euclid(of.size_us) * of.size_us
                    + of.offset_us
                    + of.size_us;
                end + lateness_us <= watermark_us
            }
            _ => false,
        };
        Before {
            records: 0,
            passing: passes.into(),
            null_time: (passes && self.window.is_some() && ms.is_none()).into(),
            late: (passes && late).into(),
        }
    }
}

/// The stages that count, if an output has the rows of all of them, as they are.
fn stages(plan: &Plan) -> Option<Vec<Counter>> {
    let [Output { stage, sort, .. }] = &plan.outputs[..] else { return None };
    let takes_all = |sort: &Sort| sort.limit.is_none() && sort.offset == 0;
    let of_last = &plan.stages[*stage];
    let is_same = |project: &Project| {
        let mut columns = project.columns.iter().enumerate();
        columns.all(|(place, expr)| matches!(expr, Expr::Column(of) if *of == place))
    };
    let counting: Vec<usize> = match &of_last.operator {
        Operator::Stateless { limit: None, offset: 0 } => {
            let take = |input: &Input| match (input.from, &input.filter, &input.project) {
                (Node::Stage(stage), None, project) if project.iter().all(is_same) => Some(stage),
                _ => None,
            };
            of_last.inputs.iter().map(take).collect::<Option<_>>()?
        }
        Operator::Aggregate(_) => vec![*stage],
        _ => return None,
    };
    // A stage that is taken twice has its rows twice.
    if (1..counting.len()).any(|at| counting[..at].contains(&counting[at])) {
        return None;
    }
    let others = plan.stages.len() - counting.len();
    let is_all = others == usize::from(!counting.contains(stage));
    let stages = counting.iter().map(|number| Counter::new(*number, &plan.stages[*number]));
    stages.collect::<Option<Vec<_>>>().filter(|_| is_all && sort.as_ref().is_none_or(takes_all))
}

impl Counting {
    /// What a query must conserve; `None` where a record counts several times, or not in each row.
    pub(crate) fn of(query: &Query, what: &str) -> Option<Counting> {
        let [source] = &query.plan.sources[..] else { return None };
        let stages = stages(&query.plan)?;
        let time = source.event_time.as_ref()?;
        let (0, Watermark::Delay(delay_us), true) =
            (time.column, &time.watermark, source.derived.is_empty())
        else {
            return None;
        };
        let is_session = |stage: &Counter| matches!(stage.window, Some(Window::Session(_)));
        let knows_late = time.idle_timeout_us.is_none() && !stages.iter().any(is_session);
        let (splits, what) = (Vec::new(), what.to_string());
        let mut counting = Counting { what, stages, splits, knows_late };
        let lateness_us = query.lateness_ms * 1000;
        for mut split in
            source.table.open(&source.projection, &OpenOptions::alone(1 << 14, 0, 1)).unwrap()
        {
            let (mut before, mut watermark_us) = (vec![Before::default()], i64::MIN);
            while let SplitPoll::Chunk(chunk) =
                split.poll_next(i64::MAX, Waker::noop()).expect("a chunk")
            {
                let rows = chunk.decode().expect("rows");
                let mut sum = *before.last().expect("the begin");
                sum.add(counting.count(&rows, *delay_us, lateness_us, &mut watermark_us));
                before.push(sum);
            }
            counting.splits.push(before);
        }
        Some(counting)
    }

    /// Counts the records of a chunk.
    fn count(
        &self,
        rows: &RecordBatch,
        delay_us: i64,
        lateness_us: i64,
        watermark_us: &mut i64,
    ) -> Before {
        let mut sum = Before { records: rows.num_rows() as u64, ..Before::default() };
        let filter = |stage: &Counter| Some(stage.filter.as_ref()?.evaluate(rows).unwrap());
        let passing: Vec<_> = self.stages.iter().map(filter).collect();
        let times = rows.column(0).as_primitive::<TimestampMillisecondType>();
        for (row, ms) in times.iter().enumerate() {
            for (stage, passing) in self.stages.iter().zip(&passing) {
                let passes = passing.as_ref().map(|passing| passing.as_boolean());
                let passes = passes.is_none_or(|of| of.is_valid(row) && of.value(row));
                sum.add(stage.count(passes, ms, *watermark_us, lateness_us));
            }
            *watermark_us = (*watermark_us).max(ms.map_or(i64::MIN, |ms| ms * 1000 - delay_us));
        }
        sum
    }

    /// The counts of rows of the output, as lines.
    pub(crate) fn in_lines(&self, lines: &[String]) -> u64 {
        // All stages have it at the same place.
        let place = self.stages[0].place;
        let count = |line: &String| {
            let cell = line.split('|').nth(place).expect("a count");
            cell.parse::<u64>().expect("a count")
        };
        lines.iter().map(count).sum()
    }

    /// The records of the input before a cut.
    fn before(&self, from: &Resume) -> Before {
        let mut sum = Before::default();
        for (name, mark) in from.marks.values().flat_map(|of| &of.splits) {
            let number = name.strip_prefix("split ").and_then(|number| number.parse().ok());
            let split: &Vec<Before> = &self.splits[number.unwrap_or(usize::MAX)];
            let chunks = mark.position.0.first().copied().unwrap_or(0);
            assert_eq!(split[chunks as usize].records, mark.records, "{}{name}", self.what);
            sum.add(split[chunks as usize]);
        }
        sum
    }

    /// Checks a cut that has been written, when outputs have so many counts in their rows.
    pub(crate) fn check(&self, state: &[CutBatch], from: &Resume, fired: u64) -> Counted {
        let before = self.before(from);
        let sum = |rows: &RecordBatch, column: &str| {
            let counts = rows.column_by_name(column).expect("counts").as_primitive::<Int64Type>();
            counts.iter().map(|count| count.expect("a count") as u64).sum::<u64>()
        };
        let in_stage = |stage: &Counter| {
            let own = state.iter().filter(|of| of.owner.0 == stage.number);
            own.map(|of| sum(&of.whole().rows, &stage.column)).sum::<u64>()
        };
        let place = |rows: &RecordBatch| rows.schema().field(self.stages[0].place).name().clone();
        let waiting = from.outputs.iter().flat_map(|mark| &mark.waiting);
        let totals = &from.totals;
        let counted = Counted {
            cuts: 1,
            in_state: self.stages.iter().map(in_stage).sum(),
            waiting: waiting.map(|rows| sum(rows, &place(rows))).sum(),
            fired,
            late: totals.late_records,
            filtered: self.stages.len() as u64 * before.records - before.passing,
        };
        let what = format!("{}  {counted:?}, {before:?}, {totals:?}", self.what);
        assert_eq!(totals.records, before.records, "{what}");
        assert_eq!(totals.null_time_records, before.null_time, "{what}");
        if self.knows_late {
            assert_eq!(totals.late_records, before.late, "{what}");
        }
        let left_out = totals.late_records + totals.null_time_records;
        let counts = counted.in_state + counted.waiting + counted.fired;
        assert_eq!(before.passing - left_out, counts, "rows are not conserved: {what}");
        counted
    }

    /// A query that conserves rows: windows of one size or two, with and without a filter, in
    /// order or not.
    pub(crate) fn query(random: &mut Random) -> Query {
        let (splits, per_split) = (1 + random.below(3) as usize, random.pick(&[40, 400, 900]));
        let keys = random.pick(&[1, 60, 100_000]);
        let data = records(random, splits, per_split, keys);
        let batch_rows = random.pick(&[1, 20, 100]);
        let memory = table(&data, random, batch_rows);
        let delay_us = random.pick(&[0, 100_000, 2_000_000]);
        let of = |window_ms| query(memory.clone(), window_ms, delay_us);
        let mut plan = of(random.pick(&[None, Some(50), Some(1000)]));
        if random.below(2) == 0 {
            let at_least = AtLeast { column: 3, least: -200 };
            let filter = Expr::Computed(Arc::new(at_least));
            plan.stages[0].inputs[0].filter = Some(filter);
        }
        let windowed = plan.stages[0].output.fields().len() == 8;
        match random.below(3) {
            0 if windowed => {
                plan.stages.extend(of(Some(500)).stages);
                let schema = plan.stages[0].output.clone();
                let columns = (0..schema.fields().len()).map(Expr::Column).collect();
                let project = Some(Project { columns, schema: schema.clone() });
                let input =
                    |stage| Input { project: project.clone(), ..Input::all(Node::Stage(stage)) };
                let inputs = [0, 1].map(input).into();
                let operator = Operator::Stateless { limit: None, offset: 0 };
                let union = Stage { names: vec![], inputs, operator, output: schema };
                plan.stages.push(union);
                plan.outputs = vec![Output::of(2)];
            }
            1 => {
                let keys = vec![SortKey { column: 0, descending: true, nulls_first: false }];
                let visible = plan.stages[0].output.fields().len();
                let sort = Sort { keys, visible, limit: None, offset: 0, each_window: false };
                plan.outputs[0].sort = Some(sort);
            }
            _ => {}
        }
        let what = format!("{splits} splits, {} stages, {:?}", plan.stages.len(), plan.outputs);
        Query { plan, what, lateness_ms: random.pick(&[0, 700]) }
    }
}
