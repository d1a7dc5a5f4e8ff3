//! Plans of any shape over random tables, and their right rows, worked out one after the other.

mod turns;

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::*;
use arrow::datatypes::*;
use millstream_contract::expr::Expr;
use millstream_contract::plan::*;
use millstream_contract::table::{Sharing, Table};

use super::chain::{AtLeast, MS};
use super::script::{Script, Scripted, batches_of};
use super::{Memory, Random, Record, call, key, query, records};

/// A table: per split, per chunk, its records.
#[derive(Clone)]
pub(crate) struct Origin {
    pub(crate) chunks: Vec<Vec<Vec<Record>>>,
    table: Arc<dyn Table>,
    delay_us: i64,
    idle_timeout_us: Option<i64>,
}

/// What a stage takes: key and value of the rows of a node, if the value is at least so much.
#[derive(Debug, Clone)]
pub(crate) struct Take {
    pub(crate) from: Node,
    pub(crate) at_least: Option<i64>,
    /// Whether the stage sees the columns as they are.
    pub(crate) raw: bool,
}

/// `SELECT key, value` of a union, or `SELECT window_start, key, COUNT(*) AS rows, SUM(value) AS
/// total ... GROUP BY`. Of an aggregation the next stage takes the total as its value, and as its
/// key the key or, if there is none, the number of rows.
#[derive(Debug, Clone)]
pub(crate) enum Kind {
    Pass { limit: Option<u64>, offset: u64 },
    Aggregate { window_ms: Option<(i64, i64)>, keyed: bool },
}

#[derive(Debug, Clone)]
pub(crate) struct Stop {
    pub(crate) takes: Vec<Take>,
    pub(crate) kind: Kind,
}

/// A plan.
#[derive(Clone)]
pub(crate) struct Graph {
    pub(crate) origins: Vec<Origin>,
    pub(crate) stops: Vec<Stop>,
    pub(crate) outputs: Vec<Output>,
    pub(crate) lateness_ms: i64,
}

impl std::fmt::Debug for Graph {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (number, stop) in self.stops.iter().enumerate() {
            writeln!(f, "stage {number}: {stop:?}")?;
        }
        for origin in &self.origins {
            let chunks: Vec<usize> = origin.chunks.iter().map(Vec::len).collect();
            let (delay_us, idle) = (origin.delay_us, origin.idle_timeout_us);
            writeln!(f, "source: chunks {chunks:?}, delay {delay_us}, idle {idle:?}")?;
        }
        write!(f, "outputs {:?}, lateness {} ms", self.outputs, self.lateness_ms)
    }
}

/// When a row counts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Turn {
    /// Chunk, split; record within the chunk; inputs from the output on.
    Record((usize, usize), usize, Vec<usize>),
    /// When the window fires, inputs from the output on, where it starts; the cells.
    Window(i64, Vec<usize>, i64, Vec<(bool, i64)>),
}

/// A row on its way.
#[derive(Debug, Clone)]
struct Row {
    key: Option<i64>,
    value: Option<i64>,
    turn: Turn,
    time_ms: Option<i64>,
    /// The watermark of its split before a record.
    before_us: Option<i64>,
    line: String,
}

/// What the plan yields.
#[derive(Debug, Default)]
pub(crate) struct Expected {
    /// By output.
    pub(crate) rows: Vec<Vec<String>>,
    pub(crate) records: u64,
    pub(crate) late: u64,
    pub(crate) null_time: u64,
    /// Rows that aggregations take of others.
    pub(crate) inner: u64,
}

fn cell(value: Option<i64>) -> (bool, i64) {
    (value.is_none(), value.unwrap_or(0))
}

fn show(value: Option<i64>) -> String {
    value.map_or(String::new(), |value| value.to_string())
}

impl Origin {
    /// Everything follows from chance.
    fn any(random: &mut Random) -> Origin {
        let splits = 1 + random.below(4) as usize;
        let per_split = [0, 1, 40, 300][random.below(4) as usize];
        let keys = [1, 5, 60, 100_000][random.below(4) as usize];
        let data = records(random, splits, per_split, keys);
        let batch_rows = [1, 20, 100][random.below(3) as usize];
        let delay_us = [0, 1, 100_000, 2_000_000][random.below(4) as usize];
        let sharing =
            [Sharing::Whole, Sharing::ByChunk, Sharing::Coordinator][random.below(3) as usize];
        Origin::of(&data, random, batch_rows, (delay_us, sharing))
    }

    /// All at once, or each split at its own pace, perhaps with one that never has a record.
    fn of(
        data: &[Vec<Record>],
        random: &mut Random,
        batch_rows: u64,
        (delay_us, sharing): (i64, Sharing),
    ) -> Origin {
        let (mut chunks, mut splits) = (Vec::new(), Vec::new());
        for records in data {
            let batches = batches_of(records, random, batch_rows);
            let mut rest = &records[..];
            let chunk = |batch: &RecordBatch| {
                let (chunk, left) = rest.split_at(batch.num_rows());
                rest = left;
                chunk.to_vec()
            };
            chunks.push(batches.iter().map(chunk).collect());
            splits.push(batches);
        }
        let nothing = super::table(&[], random, 1).schema.clone();
        let mut idle_timeout_us = None;
        let table: Arc<dyn Table> = match random.below(3) {
            0 => Arc::new(Memory { schema: nothing, splits, sharing }),
            kind => {
                let script = |batches: Vec<RecordBatch>| {
                    let pace_us = [0, 50, 3_000][random.below(3) as usize];
                    let batches = batches.into_iter().enumerate();
                    Script { batches: batches.map(|(i, b)| (i as i64 * pace_us, b)).collect() }
                };
                let mut scripts: Vec<Script> = splits.into_iter().map(script).collect();
                if kind == 2 {
                    // A job that goes on waits anew for the time of a batch: no split that has
                    // records is idle meanwhile.
                    let times = scripts.iter().flat_map(|script| &script.batches).map(|one| one.0);
                    let idle_us = times.max().map_or(500_000, |last| (2 * last).max(500_000));
                    let silent = RecordBatch::new_empty(nothing);
                    scripts.push(Script { batches: vec![(3 * idle_us, silent)] });
                    chunks.push(vec![vec![]]);
                    idle_timeout_us = Some(idle_us);
                }
                Arc::new(Scripted::new(scripts, 0).shared(sharing))
            }
        };
        Origin { chunks, table, delay_us, idle_timeout_us }
    }

    fn source(&self) -> Source {
        let Plan { mut sources, .. } = query(self.table.clone(), Some(1), self.delay_us);
        let mut source = sources.remove(0);
        if let Some(time) = &mut source.event_time {
            time.idle_timeout_us = self.idle_timeout_us;
        }
        source
    }

    fn rows(&self, first_split: usize) -> Vec<Row> {
        let mut rows = Vec::new();
        for (split, chunks) in self.chunks.iter().enumerate() {
            let mut watermark = i64::MIN;
            for (sequence, chunk) in chunks.iter().enumerate() {
                for (at, record) in chunk.iter().enumerate() {
                    let before_us = Some(watermark);
                    if let Some(ts) = record.ts_ms {
                        watermark = watermark.max(ts * 1000 - self.delay_us);
                    }
                    rows.push(Row {
                        key: record.key,
                        value: record.amount,
                        turn: Turn::Record((sequence, first_split + split), at, vec![]),
                        time_ms: record.ts_ms,
                        before_us,
                        line: String::new(),
                    });
                }
            }
        }
        rows
    }
}

impl Turn {
    /// Of a row that has come through an input of this number.
    fn behind(&self, input: usize) -> Turn {
        let behind = |path: &Vec<usize>| [input].iter().chain(path).copied().collect();
        match self {
            Turn::Record(chunk, at, path) => Turn::Record(*chunk, *at, behind(path)),
            Turn::Window(fires_at, path, start, cells) => {
                Turn::Window(*fires_at, behind(path), *start, cells.clone())
            }
        }
    }
}

impl Graph {
    /// Everything follows from chance.
    pub(crate) fn any(random: &mut Random) -> Graph {
        let origins: Vec<Origin> = (0..1 + random.below(3)).map(|_| Origin::any(random)).collect();
        let (stops, outputs) = (Vec::new(), Vec::new());
        let lateness_ms = [0, 0, 700][random.below(3) as usize];
        let mut graph = Graph { origins, stops, outputs, lateness_ms };
        for _ in 0..1 + random.below(4) {
            graph.add_stop(random);
        }
        for source in (0..graph.origins.len()).map(Node::Source) {
            if !graph.is_taken(source) {
                let takes = vec![Take { from: source, at_least: None, raw: false }];
                graph.stops.push(Stop { takes, kind: Kind::Pass { limit: None, offset: 0 } });
            }
        }
        for stop in 0..graph.stops.len() {
            let is_last = !graph.is_taken(Node::Stage(stop));
            if is_last || random.below(4) == 0 {
                graph.add_output(stop, random);
            }
            if is_last && random.below(6) == 0 {
                graph.add_output(stop, random);
            }
        }
        graph
    }

    fn add_stop(&mut self, random: &mut Random) {
        let nodes = self.origins.len() + self.stops.len();
        let count = [1, 1, 2, 3][random.below(4) as usize];
        let take = |random: &mut Random| {
            // Mostly of what has come last, or there would be few cascades.
            let node = nodes - 1 - (random.below(nodes as u64).min(random.below(4))) as usize;
            let node =
                if random.below(4) == 0 { random.below(nodes as u64) as usize } else { node };
            let from = match node.checked_sub(self.origins.len()) {
                Some(stop) => Node::Stage(stop),
                None => Node::Source(node),
            };
            let at_least = [None, None, Some(-100)][random.below(3) as usize];
            Take { from, at_least, raw: count == 1 && random.below(2) == 0 }
        };
        let takes: Vec<Take> = (0..count).map(|_| take(random)).collect();
        let has_time = takes.iter().all(|take| self.has_time(take.from));
        let sizes = [(50, 0), (500, 0), (1000, 0), (300, 70), (3000, 0)];
        let kind = match random.below(5) {
            0 | 1 => Kind::Pass { limit: None, offset: 0 },
            2 | 3 if has_time => {
                let window_ms = Some(sizes[random.below(5) as usize]);
                Kind::Aggregate { window_ms, keyed: random.below(3) > 0 }
            }
            _ => Kind::Aggregate { window_ms: None, keyed: random.below(3) > 0 },
        };
        self.stops.push(Stop { takes, kind });
    }

    fn add_output(&mut self, stage: usize, random: &mut Random) {
        let (mut records, mut windows) = (false, false);
        self.see_roots(stage, &mut records, &mut windows);
        let is_taken = self.is_taken(Node::Stage(stage));
        let is_output = self.outputs.iter().any(|output| output.stage == stage);
        let may_limit = !(is_taken || is_output || records && windows);
        if may_limit && random.below(3) == 0 {
            let some = [None, Some(0), Some(1), Some(7), Some(200)][random.below(5) as usize];
            if let Kind::Pass { limit, offset } = &mut self.stops[stage].kind {
                (*limit, *offset) = (some, [0, 0, 5][random.below(3) as usize]);
            }
        }
        let limits = matches!(&self.stops[stage].kind,
            Kind::Pass { limit, offset } if limit.is_some() || *offset > 0);
        let sorts = records && windows || random.below(6) == 0 && !limits;
        let visible = self.output(stage).fields().len();
        let (column, limit) = (visible - 1, [None, Some(10)][random.below(2) as usize]);
        let keys = vec![SortKey { column, descending: true, nulls_first: false }];
        let offset = random.below(3);
        let sort = Sort { keys, visible, limit, offset, each_window: false };
        self.outputs.push(Output { stage, sort: sorts.then_some(sort), side: false });
    }

    /// Whether rows of records come out of a stage, or rows of windows.
    fn see_roots(&self, stage: usize, records: &mut bool, windows: &mut bool) {
        match &self.stops[stage].kind {
            Kind::Aggregate { window_ms, .. } => *windows |= window_ms.is_some(),
            Kind::Pass { .. } => {
                for take in &self.stops[stage].takes {
                    match take.from {
                        Node::Source(_) | Node::Malformed(_) => *records = true,
                        Node::Stage(before) => self.see_roots(before, records, windows),
                    }
                }
            }
        }
    }

    fn is_taken(&self, node: Node) -> bool {
        self.stops.iter().any(|stop| stop.takes.iter().any(|take| take.from == node))
    }

    fn has_time(&self, node: Node) -> bool {
        match node {
            Node::Source(_) | Node::Malformed(_) => true,
            Node::Stage(stage) => match &self.stops[stage].kind {
                Kind::Aggregate { window_ms, .. } => window_ms.is_some(),
                Kind::Pass { .. } => {
                    self.stops[stage].takes.iter().all(|take| self.has_time(take.from))
                }
            },
        }
    }

    /// Whether some split never has a record.
    pub(crate) fn is_slow(&self) -> bool {
        self.origins.iter().any(|origin| origin.idle_timeout_us.is_some())
    }

    /// Whether some output takes only the first rows.
    pub(crate) fn has_limit(&self) -> bool {
        let limits = |stop: &Stop| matches!(&stop.kind, Kind::Pass { limit: Some(_), .. });
        self.stops.iter().any(limits)
    }

    /// The columns of a node's rows that are taken as key and value.
    fn columns(&self, node: Node) -> [usize; 2] {
        match node {
            Node::Source(_) | Node::Malformed(_) => [1, 3],
            Node::Stage(stage) => match &self.stops[stage].kind {
                Kind::Pass { .. } => [0, 1],
                Kind::Aggregate { window_ms, keyed } => {
                    let first = usize::from(window_ms.is_some());
                    [first, first + 1 + usize::from(*keyed)]
                }
            },
        }
    }

    fn output(&self, stage: usize) -> SchemaRef {
        let int = |name: &str| Field::new(name, DataType::Int64, true);
        let mut fields = Vec::new();
        match &self.stops[stage].kind {
            Kind::Pass { .. } => fields.extend([int("key"), int("value")]),
            Kind::Aggregate { window_ms, keyed } => {
                fields.extend(window_ms.map(|_| Field::new("window_start", MS, false)));
                fields.extend(keyed.then(|| int("key")));
                fields.extend([int("rows"), int("total")]);
            }
        }
        Arc::new(Schema::new(fields))
    }

    pub(crate) fn plan(&self) -> Plan {
        let stage = |number: usize| {
            let Stop { takes, kind } = &self.stops[number];
            let input = |take: &Take| {
                let [key, value] = self.columns(take.from);
                let int = |name: &str| Field::new(name, DataType::Int64, true);
                let schema = Arc::new(Schema::new(vec![int("key"), int("value")]));
                let columns = vec![Expr::Column(key), Expr::Column(value)];
                let raw = take.raw && matches!(kind, Kind::Aggregate { .. });
                let at_least = take.at_least.map(|least| AtLeast { column: value, least });
                Input {
                    from: take.from,
                    late: None,
                    filter: at_least.map(|at_least| Expr::Computed(Arc::new(at_least))),
                    project: (!raw).then_some(Project { columns, schema }),
                    again: false,
                }
            };
            let operator = match kind {
                Kind::Pass { limit, offset } => {
                    Operator::Stateless { limit: *limit, offset: *offset }
                }
                Kind::Aggregate { window_ms, keyed } => {
                    let raw = takes[0].raw.then(|| self.columns(takes[0].from));
                    let columns = raw.unwrap_or([0, 1]);
                    Operator::Aggregate(self.aggregate(number, *window_ms, *keyed, columns))
                }
            };
            let inputs = takes.iter().map(input).collect();
            Stage { names: vec![], inputs, operator, output: self.output(number) }
        };
        Plan {
            sources: self.origins.iter().map(Origin::source).collect(),
            stages: (0..self.stops.len()).map(stage).collect(),
            outputs: self.outputs.clone(),
        }
    }

    fn aggregate(
        &self,
        number: usize,
        window_ms: Option<(i64, i64)>,
        keyed: bool,
        [at_key, at_value]: [usize; 2],
    ) -> Aggregate {
        use AggregateFunction::*;
        let int = DataType::Int64;
        let aggregates = vec![
            call(Count, None, int.clone()),
            call(Sum, Some((at_value, int.clone(), true)), int.clone()),
        ];
        let windowed = window_ms.is_some();
        let times = ["window_start", "window_end", "window_time"];
        let times = times.iter().filter(|_| windowed).map(|name| Field::new(*name, MS, false));
        let output = self.output(number);
        let others = output.fields().iter().skip(usize::from(windowed));
        let fields: Vec<Field> = times.chain(others.map(|field| field.as_ref().clone())).collect();
        let first = if windowed { 3 } else { 0 };
        let project = (0..usize::from(windowed)).chain(first..fields.len());
        Aggregate {
            windows_in_slice: 1,
            pairs: None,
            window: window_ms.map(|(size, offset)| {
                Tumble { size_us: size * 1000, offset_us: offset * 1000 }.into()
            }),
            keys: if keyed { vec![key("key", at_key, int, true)] } else { vec![] },
            aggregates,
            project: project.map(Expr::Column).collect(),
            fired: Arc::new(Schema::new(fields)),
            having: None,
        }
    }

    /// The rows of all outputs, and what is counted.
    pub(crate) fn expected(&self) -> Expected {
        let mut expected = Expected::default();
        let mut first_split = 0;
        let mut sources = Vec::new();
        for origin in &self.origins {
            sources.push(origin.rows(first_split));
            first_split += origin.chunks.len();
        }
        expected.records = sources.iter().map(|rows| rows.len() as u64).sum();
        let mut stages: Vec<Vec<Row>> = Vec::new();
        for (number, stop) in self.stops.iter().enumerate() {
            let mut rows = Vec::new();
            for (input, take) in stop.takes.iter().enumerate() {
                let from = match take.from {
                    Node::Source(source) | Node::Malformed(source) => &sources[source],
                    Node::Stage(stage) => &stages[stage],
                };
                let least = |row: &&Row| {
                    take.at_least.is_none_or(|least| row.value.is_some_and(|v| v >= least))
                };
                let behind = |row: &Row| Row { turn: row.turn.behind(input), ..row.clone() };
                rows.extend(from.iter().filter(least).map(behind));
            }
            stages.push(match &stop.kind {
                Kind::Pass { .. } => passed(rows),
                Kind::Aggregate { window_ms, keyed } => {
                    let lateness_ms = if self.takes_records(number) { self.lateness_ms } else { 0 };
                    grouped(rows, *window_ms, *keyed, lateness_ms, &mut expected)
                }
            });
        }
        for Output { stage, sort, .. } in &self.outputs {
            let mut rows = stages[*stage].clone();
            let one_after_the_other = self.comes_by_source(*stage);
            let source = |turn: &Turn| match turn {
                Turn::Record((_, split), ..) if one_after_the_other => self.source_of(*split),
                _ => 0,
            };
            rows.sort_by(|a, b| (source(&a.turn), &a.turn).cmp(&(source(&b.turn), &b.turn)));
            let (skip, limit) = match (sort, &self.stops[*stage].kind) {
                (Some(sort), kind) => {
                    let descending = |row: &Row| (row.value.is_none(), row.value.map(|v| -v));
                    let cells = |row: &Row| self.cells(kind, row);
                    rows.sort_by_key(|row| (descending(row), cells(row)));
                    (sort.offset, sort.limit)
                }
                (None, Kind::Pass { limit, offset }) => (*offset, *limit),
                (None, Kind::Aggregate { .. }) => (0, None),
            };
            let some = rows.into_iter().skip(skip as usize);
            let some = some.take(limit.map_or(usize::MAX, |limit| limit as usize));
            expected.rows.push(some.map(|row| row.line).collect());
        }
        expected
    }

    /// What a row is ordered by within a window.
    fn cells(&self, kind: &Kind, row: &Row) -> Vec<(bool, i64)> {
        match (kind, &row.turn) {
            (Kind::Aggregate { .. }, Turn::Window(_, _, start, cells)) => {
                [(false, *start)].into_iter().chain(cells.iter().copied()).collect()
            }
            _ => vec![cell(row.key), cell(row.value)],
        }
    }

    fn takes_records(&self, stage: usize) -> bool {
        let takes_records = |take: &Take| match take.from {
            Node::Source(_) | Node::Malformed(_) => true,
            Node::Stage(before) => {
                matches!(self.stops[before].kind, Kind::Pass { .. }) && self.takes_records(before)
            }
        };
        self.stops[stage].takes.iter().any(takes_records)
    }
}

fn grouped(
    rows: Vec<Row>,
    window_ms: Option<(i64, i64)>,
    keyed: bool,
    lateness_ms: i64,
    expected: &mut Expected,
) -> Vec<Row> {
    type Sums = (i64, Option<i64>);
    let mut groups: BTreeMap<(i64, (bool, i64)), Sums> = BTreeMap::new();
    for row in rows {
        expected.inner += u64::from(row.before_us.is_none());
        let start = match (window_ms, row.time_ms) {
            (None, _) => 0,
            (Some(_), None) => {
                expected.null_time += 1;
                continue;
            }
            (Some((size, offset)), Some(time)) => {
                let start = (time - offset).div_euclid(size) * size + offset;
                let closes_us = (start + size + lateness_ms) * 1000;
                if row.before_us.is_some_and(|before| closes_us <= before) {
                    expected.late += 1;
                    continue;
                }
                start
            }
        };
        let group = if keyed { cell(row.key) } else { (false, 0) };
        let (count, total) = groups.entry((start, group)).or_default();
        *count += 1;
        *total = row.value.map(|value| value + total.unwrap_or(0)).or(*total);
    }
    if groups.is_empty() && !keyed && window_ms.is_none() {
        groups.insert((0, (false, 0)), (0, None));
    }
    let row = |((start, group), (count, total)): ((i64, (bool, i64)), Sums)| {
        let key = (!group.0).then_some(group.1);
        let (mut line, mut cells) = (Vec::new(), Vec::new());
        if window_ms.is_some() {
            let at = TimestampMillisecondArray::from(vec![start]);
            line.push(arrow::util::display::array_value_to_string(&at, 0).unwrap());
        }
        if keyed {
            line.push(show(key));
            cells.push(group);
        }
        line.extend([count.to_string(), show(total)]);
        cells.extend([cell(Some(count)), cell(total)]);
        let ends = window_ms.map(|(size, _)| start + size);
        let fires_at = ends.map_or(i64::MAX, |end| (end + lateness_ms) * 1000);
        Row {
            key: if keyed { key } else { Some(count) },
            value: total,
            turn: Turn::Window(fires_at, vec![], start, cells),
            time_ms: ends.map(|end| end - 1),
            before_us: None,
            line: line.join("|"),
        }
    };
    groups.into_iter().map(row).collect()
}

/// Rows as a stage without state yields them: those of windows are ordered by what it shows.
fn passed(rows: Vec<Row>) -> Vec<Row> {
    let pass = |row: Row| {
        let (Row { key, value, .. }, cells) = (&row, vec![cell(row.key), cell(row.value)]);
        let line = format!("{}|{}", show(*key), show(*value));
        let turn = match &row.turn {
            Turn::Window(fires_at, path, start, _) => {
                Turn::Window(*fires_at, path.clone(), *start, cells)
            }
            turn => turn.clone(),
        };
        Row { line, turn, ..row }
    };
    rows.into_iter().map(pass).collect()
}
