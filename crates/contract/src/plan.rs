//! The plan of a job: a directed acyclic graph of sources, stages and outputs.
//!
//! A [`Source`] is a table that is read once. A [`Stage`] takes the rows of sources or of earlier
//! stages, filters them and gives them to its operator. The rows that an aggregation yields when a
//! window fires are an input like any other. An [`Output`] is a stage whose rows leave the job.
//!
//! The SQL crate produces a [`Plan`]; nothing here knows SQL text.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::datatypes::{DataType, Schema, SchemaRef};

use crate::error::{Error, Result};
use crate::expr::{Evaluate, Expr};
use crate::pruning::Pruning;

mod calls;
mod dictionaries;
mod join;
mod left_out;
mod lookup;
mod packed;
mod pairs;
mod ranked;
mod source;
mod window;

pub use calls::{AggregateFunction, Argument, Bits, Moment};
pub use join::{Join, JoinKind};
use left_out::MALFORMED;
pub use left_out::{PLACE, RAW, REASON, late_fields, malformed_rows, malformed_schema};
pub use lookup::Lookup;
pub use packed::{Layout, PACK_US};
pub use pairs::{PairSide, Pairs};
pub use ranked::{Best, Directions, Ranking, Share};
pub use source::{Derived, EventTime, Source, Watermark};
pub use window::{Cumulate, Hop, Interval, OpenWindows, Session, Tumble, Window};

/// A continuous query in executable form.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Each is read once, however many stages take its rows.
    pub sources: Vec<Source>,
    /// A stage takes rows of sources and of stages before it.
    pub stages: Vec<Stage>,
    /// Stages whose rows leave the job.
    pub outputs: Vec<Output>,
}

/// An operator over the rows of some sources and stages.
#[derive(Debug, Clone)]
pub struct Stage {
    /// Names of the stage, in order: at least one in a plan of SQL, and no name twice in a plan.
    ///
    /// A name has the name of the view around the operator or else of the sink, the name of the
    /// innermost subquery, and the kind of the operator: `v.join`, `sink.subquery.window`. A number
    /// follows only among equals. So a name survives edits elsewhere in a script. A stage shared by
    /// several sinks has a name for each sink, and each name survives alone.
    pub names: Vec<String>,
    /// Where its rows come from; several are a UNION ALL, but for the two sides of a join.
    pub inputs: Vec<Input>,
    /// The operator over these rows.
    pub operator: Operator,
    /// Schema of the stage's rows.
    pub output: SchemaRef,
}

/// Rows that a stage takes.
#[derive(Debug, Clone)]
pub struct Input {
    /// Whose rows.
    pub from: Node,
    /// Takes only records too late for a window of their stage; `None`: all. Only for a source, and
    /// a stage without state. Two columns follow the source's columns ([`Late`]).
    pub late: Option<Late>,
    /// Condition on the taken rows, over the columns of `from`.
    pub filter: Option<Expr>,
    /// Columns for the operator; `None`: the columns of `from`. All inputs of a stage, or of a side
    /// of a join, have the same types.
    pub project: Option<Project>,
    /// Whether another input takes the same rows for the same windows: records that are dropped,
    /// as they are late or have no time, are counted there.
    pub again: bool,
}

/// Records that are late: they come when the watermark of their own split has closed the window
/// that they belong to.
///
/// The columns that follow those of the source are [`PLACE`] and [`REASON`], both `Utf8` and never
/// NULL: where the record stands, and by how much it was late.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Late {
    /// The windows for which the records are too late.
    pub window: Window,
}

/// Columns computed of others.
#[derive(Debug, Clone)]
pub struct Project {
    /// Over the columns of whoever the rows come from.
    pub columns: Vec<Expr>,
    /// Of the rows that come out.
    pub schema: SchemaRef,
}

impl Stage {
    /// The inputs in groups of equal types: all inputs, or the inputs of each side of a join.
    pub fn sides(&self) -> Vec<&[Input]> {
        match &self.operator {
            Operator::Join(join) => {
                let (left, right) = self.inputs.split_at(join.left_inputs.min(self.inputs.len()));
                vec![left, right]
            }
            _ => vec![&self.inputs[..]],
        }
    }
}

impl Input {
    /// All rows of a node, as they are.
    pub fn all(from: Node) -> Input {
        Input { from, late: None, filter: None, project: None, again: false }
    }
}

/// Something that yields rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Node {
    /// Of [`Plan::sources`].
    Source(usize),
    /// Malformed records of one of [`Plan::sources`], where its table keeps such records
    /// ([`crate::table::Decoded::malformed`]). Only stages without state take them.
    Malformed(usize),
    /// Of [`Plan::stages`].
    Stage(usize),
}

/// Where rows leave the job. A job is given a sink for each, in the same order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// The stage with the rows, one of [`Plan::stages`]. Further stages and outputs may read it
    /// too.
    pub stage: usize,
    /// A separate order of this output's rows.
    pub sort: Option<Sort>,
    /// Whether the output has left-out records: no table is read for such outputs alone.
    pub side: bool,
}

impl Output {
    /// All rows of a stage, as they come.
    pub fn of(stage: usize) -> Output {
        Output { stage, sort: None, side: false }
    }
}

/// ORDER BY, LIMIT and OFFSET of a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sort {
    /// Sort keys. After these, rows are ordered by all visible columns, from left to right, NULLs
    /// last.
    pub keys: Vec<SortKey>,
    /// Columns that leave the job; later columns serve the order only.
    pub visible: usize,
    /// LIMIT.
    pub limit: Option<u64>,
    /// OFFSET.
    pub offset: u64,
    /// Whether the first key is the end of windows, or goes up with it, so that the rows of each
    /// window are written in order when it is complete. Otherwise the result ends, and all rows are
    /// there before the first is written.
    pub each_window: bool,
}

/// A column that rows are ordered by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SortKey {
    /// Index into [`Stage::output`].
    pub column: usize,
    /// DESC.
    pub descending: bool,
    /// NULLS FIRST.
    pub nulls_first: bool,
}

impl Plan {
    /// A plan of a single source, stage and output.
    pub fn of_one_stage(
        source: Source,
        filter: Option<Expr>,
        operator: Operator,
        output: SchemaRef,
    ) -> Plan {
        let inputs = vec![Input { filter, ..Input::all(Node::Source(0)) }];
        Plan {
            sources: vec![source],
            stages: vec![Stage { names: vec![], inputs, operator, output }],
            outputs: vec![Output::of(0)],
        }
    }

    /// The source of a plan with a single source.
    ///
    /// # Errors
    /// An internal one where there are none or several.
    pub fn source(&self) -> Result<&Source> {
        match &self.sources[..] {
            [source] => Ok(source),
            sources => Err(Error::Internal(format!("a plan of {} sources", sources.len()))),
        }
    }

    /// Whose rows leave the job at an output.
    ///
    /// # Errors
    /// An internal one where there is no such output.
    pub fn output(&self, output: usize) -> Result<&Stage> {
        let stage = self.outputs.get(output).and_then(|output| self.stages.get(output.stage));
        stage.ok_or_else(|| Error::Internal(format!("a plan of {} outputs", self.outputs.len())))
    }

    /// Stages that have state; one if none has. As many the channels between processes are made
    /// for.
    pub fn state_stages(&self) -> usize {
        self.stages.iter().filter(|stage| stage.operator.has_state()).count().max(1)
    }

    /// Whether rows of a node have a time: those of a source that declares one, of a window, and
    /// of a stage without state over such rows alone.
    pub fn has_time(&self, node: Node) -> bool {
        match node {
            Node::Source(source) => {
                self.sources.get(source).is_some_and(|source| source.event_time.is_some())
            }
            Node::Malformed(_) => false,
            Node::Stage(stage) => {
                self.stages.get(stage).is_some_and(|stage| match &stage.operator {
                    Operator::Aggregate(_) | Operator::Join(_) => stage.operator.window().is_some(),
                    Operator::Stateless { .. } | Operator::Unnest(_) | Operator::Lookup(_) => {
                        stage.inputs.iter().all(|input| self.has_time(input.from))
                    }
                })
            }
        }
    }

    /// Checks that nodes take rows of earlier nodes, that windows are over rows with a time, and
    /// that every computed column has a reader.
    ///
    /// # Errors
    /// An internal error if a check fails.
    pub fn check(&self) -> Result<()> {
        let wrong = |what: &str| Err(Error::Internal(format!("a plan with {what}")));
        for (number, stage) in self.stages.iter().enumerate() {
            let is_before = |input: &Input| match input.from {
                Node::Source(source) | Node::Malformed(source) => source < self.sources.len(),
                Node::Stage(stage) => stage < number,
            };
            if stage.inputs.is_empty() || !stage.inputs.iter().all(is_before) {
                return wrong("a stage that does not follow its inputs");
            }
            let sides = stage.sides();
            if sides.iter().any(|side| side.is_empty()) {
                return wrong("a join of one side");
            }
            let differ = |side: &&[Input]| {
                side.len() > 1 && side.iter().any(|input| input.project.is_none())
            };
            if sides.iter().any(differ) {
                return wrong("a stage of several inputs that are not brought to one schema");
            }
            let misplaced = |input: &Input| match (input.late, input.from) {
                (Some(_), Node::Source(_)) => !self.has_time(input.from) || input.project.is_none(),
                (Some(_), _) => true,
                (None, Node::Malformed(_)) => input.project.is_none(),
                (None, _) => false,
            };
            let is_left_out =
                |input: &Input| input.late.is_some() || matches!(input.from, Node::Malformed(_));
            if stage.inputs.iter().any(misplaced)
                || (stage.operator.has_state() && stage.inputs.iter().any(is_left_out))
            {
                return wrong("rows that are left out where none are");
            }
            match &stage.operator {
                Operator::Unnest(_) if stage.inputs.iter().any(|input| input.project.is_none()) => {
                    return wrong("an UNNEST of columns as they are");
                }
                Operator::Lookup(lookup)
                    if stage.inputs.iter().any(|input| input.project.is_none())
                        || !lookup.is_sound(&stage.output) =>
                {
                    return wrong("a lookup of columns that are not there");
                }
                operator
                    if operator.window().is_some()
                        && !stage.inputs.iter().all(|input| self.has_time(input.from)) =>
                {
                    return wrong("windows over rows without a time");
                }
                Operator::Stateless { limit, offset }
                    if (limit.is_some() || *offset > 0) && self.is_taken(Node::Stage(number)) =>
                {
                    return wrong("a limit before its last stage");
                }
                _ => {}
            }
            let is_output = self.outputs.iter().any(|output| output.stage == number);
            if !is_output && !self.is_taken(Node::Stage(number)) {
                return wrong("a stage whose rows nobody takes");
            }
        }
        if (0..self.sources.len()).any(|source| !self.is_taken(Node::Source(source))) {
            return wrong("a source whose rows nobody takes");
        }
        match self.outputs.iter().any(|output| output.stage >= self.stages.len()) {
            true => wrong("an output of no stage"),
            _ if self.repeats_name() => wrong("two stages of one name"),
            false => Ok(()),
        }
    }

    /// Whether two stages have a name in common.
    fn repeats_name(&self) -> bool {
        let mut names = HashSet::new();
        !self.stages.iter().flat_map(|stage| &stage.names).all(|name| names.insert(name))
    }

    /// Whether some stage takes rows of a node.
    fn is_taken(&self, node: Node) -> bool {
        self.stages.iter().any(|stage| stage.inputs.iter().any(|input| input.from == node))
    }

    /// Which rows of a source count. A source that several stages take is read whole.
    pub fn pruning(&self, source: usize) -> Pruning {
        self.pruned(source).unwrap_or_default()
    }

    /// Conditions on records as they are read, all of which are TRUE on each row of a source that
    /// counts. As in [`Plan::pruning`].
    pub fn conditions(&self, source: usize) -> Vec<Arc<dyn Evaluate>> {
        let Some((source, filter)) = self.filtered(source) else { return Vec::new() };
        let mut all = filter.conjuncts();
        if all.is_empty() {
            all.push(filter.clone());
        }
        all.extend(filter.implies().into_iter().map(|any| Arc::new(any) as Arc<dyn Evaluate>));
        let read = |column: &usize| *column < source.projection.len();
        all.retain(|one| one.columns().is_some_and(|columns| columns.iter().all(read)));
        all
    }

    /// A source, and the filter of the only stage that takes its rows.
    fn filtered(&self, number: usize) -> Option<(&Source, &Arc<dyn Evaluate>)> {
        let source = self.sources.get(number)?;
        let inputs = self.stages.iter().flat_map(|stage| &stage.inputs);
        let mut takers = inputs.filter(|input| input.from == Node::Source(number));
        let (Some(taker), None) = (takers.next(), takers.next()) else { return None };
        let Some(Expr::Computed(filter)) = &taker.filter else { return None };
        Some((source, filter))
    }

    fn pruned(&self, number: usize) -> Option<Pruning> {
        let (source, filter) = self.filtered(number)?;
        let mut conditions = filter.implies();
        conditions.retain(|any| any.compared().all(|column| column < source.projection.len()));
        (!conditions.is_empty()).then_some(())?;
        Some(Pruning { conditions, always: source.always()? })
    }

    /// Schema of a node's rows.
    ///
    /// # Errors
    /// An internal one where there is no such node.
    pub fn schema_of(&self, node: Node) -> Result<&SchemaRef> {
        let schema = match node {
            Node::Source(source) => self.sources.get(source).map(|source| &source.schema),
            Node::Malformed(source) => self.sources.get(source).map(|_| &*MALFORMED),
            Node::Stage(stage) => self.stages.get(stage).map(|stage| &stage.output),
        };
        schema.ok_or_else(|| Error::Internal(format!("a plan without {node:?}")))
    }

    /// Columns of an input before its filter and its projection.
    ///
    /// # Errors
    /// As [`Plan::schema_of`].
    pub fn schema_for(&self, input: &Input) -> Result<SchemaRef> {
        let schema = self.schema_of(input.from)?;
        if input.late.is_none() {
            return Ok(schema.clone());
        }
        let late = late_fields().into_iter().map(Arc::new);
        Ok(Arc::new(Schema::new(schema.fields().iter().cloned().chain(late).collect::<Vec<_>>())))
    }
}

/// Operators of stages.
#[derive(Debug, Clone)]
pub enum Operator {
    /// No state: rows go on as projected by their inputs, with their times.
    Stateless {
        /// LIMIT.
        limit: Option<u64>,
        /// OFFSET. Only a stage whose rows go to outputs alone has LIMIT or OFFSET.
        offset: u64,
    },
    /// No state: each element of the array, or entry of the map, that is the last column becomes a
    /// row, with the other columns of its record beside it, and the record's time.
    Unnest(Unnest),
    /// No state: rows go on next to the rows of a side table that match them, with the times that
    /// they have.
    Lookup(Arc<Lookup>),
    /// Grouped aggregation.
    Aggregate(Aggregate),
    /// Rows of two sides that belong together.
    Join(Box<Join>),
}

impl Operator {
    /// Whether rows rest in it, until windows fire.
    pub fn has_state(&self) -> bool {
        matches!(self, Operator::Aggregate(_) | Operator::Join(_))
    }

    /// The operator's windows, if it fires by windows.
    pub fn window(&self) -> Option<Window> {
        match self {
            Operator::Stateless { .. } | Operator::Unnest(_) | Operator::Lookup(_) => None,
            Operator::Aggregate(aggregate) => aggregate.window,
            Operator::Join(join) => join.window,
        }
    }
}

/// Expansion of an array or a map, the last column of the inputs.
///
/// The result has the other columns, then `elements`. The rows of a record are consecutive, in the
/// order of its elements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unnest {
    /// Whether a record without elements, or with NULL in their place, gives a row all the same,
    /// with NULLs (`LEFT JOIN`).
    pub outer: bool,
    /// The columns shown of each element.
    pub elements: Vec<Element>,
}

/// A column that is made of the elements of an array or the entries of a map.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Element {
    /// The element itself.
    Whole,
    /// A field of the element, which is a `ROW`, by its position; of a map's entry, 0 is the key
    /// and 1 the value. A field of NULL is NULL.
    Field(usize),
    /// Its position, counted from 1, an `INT` (`WITH ORDINALITY`).
    Ordinality,
}

/// A grouped aggregation, per window or over the whole bounded input.
///
/// The state of a fired window becomes a batch with the columns `window_start`, `window_end`,
/// `window_time` (each `Timestamp(Millisecond)`, only when `window` is set), then the keys, then
/// the aggregates; `having` and `project` are over this batch ([`Aggregate::fired`]).
#[derive(Debug, Clone)]
pub struct Aggregate {
    /// The windows, or `None` to fire once at the end of the input.
    pub window: Option<Window>,
    /// How many windows, if they tumble, or panes share a slice of state and fire together
    /// ([`Plan::pack_windows`]); 1: each has its own.
    pub windows_in_slice: i64,
    /// GROUP BY keys besides the window; may be empty. With sessions, the first of them tell
    /// sessions apart ([`Session::partition`]).
    pub keys: Vec<Key>,
    /// Aggregate calls; may be empty (SELECT DISTINCT).
    pub aggregates: Vec<AggregateCall>,
    /// The fired pairs of rows of each group, if the aggregation joins rows of a group.
    pub pairs: Option<Box<Pairs>>,
    /// Schema of the batch that a fired window yields; of pairs, the columns of both sides.
    pub fired: SchemaRef,
    /// HAVING, over `fired`.
    pub having: Option<Expr>,
    /// Output columns, over `fired`.
    pub project: Vec<Expr>,
}

impl Aggregate {
    /// Whether there is a group without any record: over nothing, a global aggregate has a row.
    pub fn has_empty_group(&self) -> bool {
        self.keys.is_empty() && self.window.is_none()
    }
}

/// One GROUP BY key.
#[derive(Debug, Clone)]
pub struct Key {
    /// For messages and `explain`.
    pub name: String,
    /// Over the input's columns.
    pub expr: Expr,
    /// Its type. Texts may come as dictionaries of them all the same ([`Plan::dictionaries`]).
    pub data_type: DataType,
    /// Whether NULL can occur; NULLs are one group.
    pub nullable: bool,
}

/// One aggregate call.
#[derive(Debug, Clone)]
pub struct AggregateCall {
    /// As SQL text, for messages and `explain`.
    pub name: String,
    /// Which function.
    pub function: AggregateFunction,
    /// Its arguments; none only for `COUNT(*)`. Where a record has NULL for one of several, it must
    /// have NULL for all: it does not take part.
    pub arguments: Vec<Argument>,
    /// `FILTER (WHERE …)` over the input's columns.
    pub filter: Option<Expr>,
    /// The type of the result column.
    pub result_type: DataType,
    /// Where the call stands, for [`crate::Error::Overflow`]; may be empty.
    pub frame: String,
}
