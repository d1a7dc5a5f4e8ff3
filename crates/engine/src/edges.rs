//! The edges of a job, worked out once: who takes the rows of a source or of a stage with state.
//!
//! Rows rest nowhere but in stages with state. Those without are passes on the way: what comes out
//! of a source or of a stage that fires goes through them to all stages with state, and to all
//! outputs, that take it. Stages with state have numbers of their own, in the plan's order.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::RecordBatch;
use millstream_state::Load;

use crate::error::{Error, Result};
use crate::expr::Expr;
use crate::plan::{Input, Node, Operator, Output, Plan, Project};
use crate::table::SideFiles;
use millstream_operators::operator::expansion::Expansion;
use millstream_operators::operator::late::LateRecords;
use millstream_operators::operator::lookup::Lookup;
use millstream_operators::operator::stateless::{self, Taking};
use millstream_operators::operator::unnest::{Unnest, elements_in};
use millstream_operators::windowing::Windowing;

/// Where rows come from that reach a stage or an output: not from a stage without state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Root {
    Source(usize),
    /// By the number of stages with state.
    Stage(usize),
}

/// All edges of a plan.
#[derive(Debug)]
pub(crate) struct Edges {
    pub(crate) sources: Vec<Feeds>,
    pub(crate) stages: Vec<Feeds>,
    /// Per output: where its rows come from, by the number of its input. Inputs of a stage without
    /// state are those of what it takes, in order.
    pub(crate) outputs: Vec<Vec<Root>>,
    /// Per stage with state: whose rows it takes.
    pub(crate) inputs: Vec<Vec<Root>>,
    /// All lookups.
    pub(crate) lookups: Vec<Arc<Lookup>>,
}

impl Edges {
    /// The files of side tables as they were read last, by the names of tables.
    pub(crate) fn side_files(&self) -> BTreeMap<String, SideFiles> {
        let named = self.lookups.iter().map(|lookup| (lookup.name().to_string(), lookup.files()));
        named.filter(|(_, files)| !files.is_empty()).collect()
    }
}

/// Readers of the rows of a source, or of a stage's fired rows.
#[derive(Debug)]
pub(crate) struct Feeds {
    pub(crate) takers: Takers,
    /// Readers of a source's malformed records.
    pub(crate) malformed: Takers,
    /// Stages with state that it feeds, and outputs, each once.
    pub(crate) stages: Vec<usize>,
    pub(crate) outputs: Vec<usize>,
    /// Stages with state that depend on these rows, directly or through other stages.
    pub(crate) later: Vec<usize>,
    /// Outputs that depend on these rows and require them to be read.
    pub(crate) serves: Vec<usize>,
    /// Sources of a group feed, in the end, a common stage.
    pub(crate) group: usize,
}

/// Readers of a node's rows.
#[derive(Debug, Default)]
pub(crate) struct Takers {
    pub(crate) edges: Vec<Edge>,
    pub(crate) passes: Vec<Pass>,
    pub(crate) ways: Vec<OutputPath>,
}

/// A stage with state that takes rows.
#[derive(Debug)]
pub(crate) struct Edge {
    pub(crate) stage: usize,
    /// Which of the stage's inputs it is, in the plan's order.
    pub(crate) input: usize,
    pub(crate) taking: Taking,
    /// Whether records that are dropped are counted elsewhere.
    pub(crate) again: bool,
    /// Columns of the source whose texts the stage keeps.
    pub(crate) texts: Vec<usize>,
}

/// A stage without state that takes rows, with the readers of its result.
#[derive(Debug)]
pub(crate) struct Pass {
    /// Its number among all stages of the plan.
    pub(crate) stage: usize,
    /// Which of the stage's inputs it takes, in the plan's order.
    pub(crate) input: usize,
    /// Takes only late records; their columns are followed by the columns about lateness.
    pub(crate) late: Option<LateRecords>,
    pub(crate) taking: Taking,
    /// Expansion of each taken row into several rows; `None`: each row stays a single row.
    pub(crate) expansion: Option<Expansion>,
    /// Whether readers take a batch with the positions of passing rows.
    pub(crate) picks: bool,
    pub(crate) takers: Takers,
    /// Stages behind it of whose windows dropped records are counted here, each as often as it
    /// takes them: behind an UNNEST are elements, of which a record may have none, and behind a
    /// lookup matches.
    pub(crate) counted: Vec<usize>,
}

/// An output that takes rows through an input.
#[derive(Debug)]
pub(crate) struct OutputPath {
    pub(crate) output: usize,
    pub(crate) input: usize,
    /// Whether others of the output's inputs are of the same source or stage.
    pub(crate) has_siblings: bool,
    /// The numbers of inputs from the output's stage on; inputs count in the order of these paths.
    path: Vec<usize>,
}

impl Takers {
    pub(crate) fn is_empty(&self) -> bool {
        self.edges.is_empty() && self.passes.is_empty() && self.ways.is_empty()
    }

    /// Whether readers take a batch with the positions of passing rows: all are stages with state,
    /// and no column is computed.
    pub(crate) fn pick(&self) -> bool {
        let in_place = |edge: &Edge| edge.taking.filter.is_none() && edge.taking.takes_in_place();
        self.passes.is_empty() && self.ways.is_empty() && self.edges.iter().all(in_place)
    }

    /// All edges to stages with state, also those behind passes.
    pub(crate) fn all_edges(&self) -> Vec<&Edge> {
        let behind = self.passes.iter().flat_map(|pass| pass.takers.all_edges());
        self.edges.iter().chain(behind).collect()
    }

    pub(crate) fn all_ways(&self) -> Vec<&OutputPath> {
        let behind = self.passes.iter().flat_map(|pass| pass.takers.all_ways());
        self.ways.iter().chain(behind).collect()
    }

    /// The load of rows for a stage, as far as known before anything is computed: as many rows, or
    /// as there are elements in a column of them.
    pub(crate) fn load_of(&self, stage: usize, batch: &RecordBatch) -> Load {
        let mut load = Load { rows: 0, text_bytes: 0 };
        let mut add = |edge: &Edge, elements: usize| {
            let Load { rows, text_bytes } = stateless::load(batch, &edge.texts);
            load.rows += rows.max(elements);
            load.text_bytes += text_bytes;
        };
        let of_stage = |edge: &&Edge| edge.stage == stage;
        self.edges.iter().filter(of_stage).for_each(|edge| add(edge, 0));
        for pass in &self.passes {
            let array = pass.expansion.as_ref().and_then(|expansion| expansion.array(&pass.taking));
            let elements = array.map_or(0, |array| elements_in(batch.column(array)));
            let edges = pass.takers.all_edges().into_iter();
            edges.filter(of_stage).for_each(|edge| add(edge, elements));
        }
        load
    }

    /// Stages whose dropped records were counted at these rows; from now on they are counted
    /// elsewhere.
    fn count_before(&mut self) -> Vec<usize> {
        let own = self.edges.iter_mut().filter(|edge| !edge.again);
        let own = own.map(|edge| {
            edge.again = true;
            edge.stage
        });
        let mut stages: Vec<usize> = own.collect();
        for pass in &mut self.passes {
            stages.append(&mut pass.counted);
            stages.append(&mut pass.takers.count_before());
        }
        stages
    }

    fn all_ways_mut(&mut self) -> Vec<&mut OutputPath> {
        let behind = self.passes.iter_mut().flat_map(|pass| pass.takers.all_ways_mut());
        self.ways.iter_mut().chain(behind).collect()
    }
}

/// A plan's nodes, while edges are found.
struct Nodes<'p> {
    plan: &'p Plan,
    /// Per stage of the plan: its number among stages with state.
    numbers: Vec<Option<usize>>,
    /// Per stage of the plan: its lookup, for a stage with a lookup.
    lookups: Vec<Option<Arc<Lookup>>>,
    /// How long windows wait for late records.
    lateness_us: i64,
}

impl Edges {
    /// Of a plan whose windows wait so long for late records.
    pub(crate) fn new(plan: &Plan, lateness_us: i64) -> Result<Edges> {
        let mut next = 0;
        let number = |stage: &crate::plan::Stage| {
            let has_state = stage.operator.has_state();
            next += usize::from(has_state);
            has_state.then(|| next - 1)
        };
        let numbers = plan.stages.iter().map(number).collect();
        let lookup = |stage: &crate::plan::Stage| match &stage.operator {
            Operator::Lookup(body) => Ok(Some(Arc::new(Lookup::new(body, &stage.output)?))),
            _ => Ok(None),
        };
        let lookups = plan.stages.iter().map(lookup).collect::<Result<Vec<_>>>()?;
        let nodes = Nodes { plan, numbers, lookups, lateness_us };
        let with_state = || (0..plan.stages.len()).filter(|stage| nodes.numbers[*stage].is_some());
        let takers = |node| nodes.takers(node, &[]);
        let all = 0..plan.sources.len();
        let mut sources = all.clone().map(Node::Source).map(takers).collect::<Vec<_>>();
        let mut malformed = all.map(Node::Malformed).map(takers).collect::<Vec<_>>();
        let mut stages = with_state().map(Node::Stage).map(takers).collect::<Vec<_>>();
        let outputs =
            number_inputs([&mut sources, &mut malformed], &mut stages, plan.outputs.len());
        let inputs = with_state().map(|stage| nodes.roots(stage)).collect();
        let groups = nodes.groups();
        let lookups = nodes.lookups.iter().flatten().cloned().collect();
        let mut edges = Edges { sources: vec![], stages: vec![], outputs, inputs, lookups };
        // The last first: later stages have the readers of earlier stages.
        let feeds = Feeding { outputs: &plan.outputs, stages_all: next };
        for takers in stages.into_iter().rev() {
            let feeds = feeds.of(takers, Takers::default(), &edges.stages, 0);
            edges.stages.insert(0, feeds);
        }
        for ((takers, malformed), group) in sources.into_iter().zip(malformed).zip(groups) {
            edges.sources.push(feeds.of(takers, malformed, &edges.stages, group));
        }
        edges.check(plan)?;
        Ok(edges)
    }

    /// How many inputs a stage with state has in the plan.
    pub(crate) fn inputs_of(&self, stage: usize) -> usize {
        let feeds = self.sources.iter().chain(&self.stages);
        let edges = feeds.flat_map(|feeds| feeds.takers.all_edges());
        edges.filter(|edge| edge.stage == stage).map(|edge| edge.input + 1).max().unwrap_or(0)
    }

    /// Checks that each output's rows have an order that does not depend on the schedule.
    fn check(&self, plan: &Plan) -> Result<()> {
        let stages = plan.stages.iter().enumerate();
        let with_state = stages.filter(|(_, stage)| stage.operator.has_state());
        let windowed: Vec<bool> =
            with_state.map(|(number, _)| plan.has_time(Node::Stage(number))).collect();
        for (roots, output) in self.outputs.iter().zip(&plan.outputs) {
            let records = roots.iter().any(|root| matches!(root, Root::Source(_)));
            let windows = roots.iter().any(|root| matches!(root, Root::Stage(s) if windowed[*s]));
            if records && windows && output.sort.is_none() {
                return Err(Error::Internal("an output of records and of windows".into()));
            }
        }
        Ok(())
    }
}

/// Context for the readers of nodes.
struct Feeding<'p> {
    outputs: &'p [Output],
    /// Number of stages with state.
    stages_all: usize,
}

impl Feeding<'_> {
    /// `after` are those of later stages with state, up to the last.
    fn of(&self, takers: Takers, malformed: Takers, after: &[Feeds], group: usize) -> Feeds {
        let once = |mut all: Vec<usize>| {
            all.sort_unstable();
            all.dedup();
            all
        };
        let stages = once(takers.all_edges().iter().map(|edge| edge.stage).collect());
        let ways = takers.all_ways().into_iter().chain(malformed.all_ways());
        let outputs = once(ways.map(|way| way.output).collect());
        let next = |stage: &usize| &after[stage + after.len() - self.stages_all];
        let later = stages.iter().flat_map(|stage| next(stage).later.iter().chain([stage]));
        let later = once(later.copied().collect());
        let serves = stages.iter().flat_map(|stage| &next(stage).serves).chain(&outputs);
        let serves = serves.copied().filter(|output| !self.outputs[*output].side);
        let serves = once(serves.collect());
        Feeds { takers, malformed, stages, outputs, later, serves, group }
    }
}

/// Numbers the inputs of each output; returns where they come from.
fn number_inputs(
    of_sources: [&mut Vec<Takers>; 2],
    of_stages: &mut [Takers],
    outputs: usize,
) -> Vec<Vec<Root>> {
    let mut all: Vec<(Root, &mut Takers)> = Vec::new();
    for takers in of_sources {
        all.extend(takers.iter_mut().enumerate().map(|(i, takers)| (Root::Source(i), takers)));
    }
    all.extend(of_stages.iter_mut().enumerate().map(|(i, takers)| (Root::Stage(i), takers)));
    let mut ways: Vec<(Root, &mut OutputPath)> = Vec::new();
    for (root, takers) in &mut all {
        ways.extend(takers.all_ways_mut().into_iter().map(|way| (*root, way)));
    }
    ways.sort_by(|(_, a), (_, b)| a.path.cmp(&b.path));
    let mut roots = vec![Vec::new(); outputs];
    for (root, way) in ways {
        way.input = roots[way.output].len();
        roots[way.output].push(root);
    }
    for (root, takers) in all {
        for way in takers.all_ways_mut() {
            let same = roots[way.output].iter().filter(|other| **other == root);
            way.has_siblings = same.count() > 1;
        }
    }
    roots
}

impl Nodes<'_> {
    /// Readers of a node's rows; `path` has the numbers of the inputs passed so far.
    fn takers(&self, node: Node, path: &[usize]) -> Takers {
        let mut takers = Takers::default();
        for (number, stage) in self.plan.stages.iter().enumerate() {
            for (at, input) in stage.inputs.iter().enumerate().filter(|(_, i)| i.from == node) {
                let Input { late, filter, project, again, .. } = input.clone();
                let taking = Taking::new(filter, project);
                if let Some(stage) = self.numbers[number] {
                    let texts = Vec::new();
                    takers.edges.push(Edge { stage, input: at, taking, again, texts });
                    continue;
                }
                let taking = match taking.project {
                    Some(_) => taking,
                    None => {
                        let columns = (0..stage.output.fields().len()).map(Expr::Column).collect();
                        let project = Some(Project { columns, schema: stage.output.clone() });
                        Taking::new(taking.filter, project)
                    }
                };
                let path: Vec<usize> = [at].into_iter().chain(path.iter().copied()).collect();
                let expansion = match (&stage.operator, &self.lookups[number]) {
                    (Operator::Unnest(body), _) => {
                        let (body, schema) = (body.clone(), stage.output.clone());
                        Some(Expansion::Elements(Unnest { body, schema }))
                    }
                    (_, lookup) => lookup.clone().map(Expansion::Matches),
                };
                let mut takers_of = self.takers(Node::Stage(number), &path);
                let counted = match &expansion {
                    Some(_) => takers_of.count_before(),
                    None => Vec::new(),
                };
                let late = late.map(|late| {
                    LateRecords::new(Windowing::new(Some(late.window), self.lateness_us))
                });
                let picks = expansion.is_none() && takers_of.pick();
                takers.passes.push(Pass {
                    stage: number,
                    input: at,
                    late,
                    taking,
                    expansion,
                    picks,
                    takers: takers_of,
                    counted,
                });
            }
        }
        for (output, of) in self.plan.outputs.iter().enumerate() {
            if Node::Stage(of.stage) == node {
                let (input, has_siblings, path) = (0, false, path.to_vec());
                takers.ways.push(OutputPath { output, input, has_siblings, path });
            }
        }
        takers
    }

    /// Whose rows a stage takes.
    fn roots(&self, stage: usize) -> Vec<Root> {
        let root = |input: &Input| match input.from {
            Node::Source(source) | Node::Malformed(source) => vec![Root::Source(source)],
            Node::Stage(before) => match self.numbers[before] {
                Some(number) => vec![Root::Stage(number)],
                None => self.roots(before),
            },
        };
        let mut roots: Vec<Root> = self.plan.stages[stage].inputs.iter().flat_map(root).collect();
        roots.sort_unstable();
        roots.dedup();
        roots
    }

    /// Per source: its group.
    fn groups(&self) -> Vec<usize> {
        let mut groups: Vec<usize> = (0..self.plan.sources.len()).collect();
        // Per stage: a source of its input.
        let mut fed_by: Vec<Option<usize>> = Vec::new();
        for stage in &self.plan.stages {
            let mut of = None;
            for input in &stage.inputs {
                let source = match input.from {
                    Node::Source(source) | Node::Malformed(source) => Some(source),
                    Node::Stage(before) => fed_by[before],
                };
                if let (Some(one), Some(other)) = (of, source) {
                    let (kept, gone): (usize, usize) = (groups[one], groups[other]);
                    groups.iter_mut().filter(|g| **g == gone).for_each(|g| *g = kept);
                }
                of = of.or(source);
            }
            fed_by.push(of);
        }
        groups
    }
}
