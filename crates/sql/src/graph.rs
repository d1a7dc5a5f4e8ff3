//! The graph of queries that are planned together. Equal parts are one node of it: a table that
//! several queries read; and a grouping, which computes the aggregates that any of the queries
//! needs.
//!
//! What a query makes of a grouping's result (HAVING, columns) is a [`View`] of it. A single view
//! is part of the grouping's stage. If there are several, each is a stage above it. What several
//! readers of a table compute alike is a [`Pass`].

use std::collections::{BTreeSet, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use datafusion_common::DFSchema;
use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_expr::Expr;
use millstream_contract::plan::{Element, Sort, Window};
use millstream_contract::table::Table;

use crate::catalog::TableEntry;
use crate::endless::{endless_group, endless_order, endless_part, windows_beside_records};
use crate::error::{Result, SqlError};
use crate::located::without_marks;
use crate::lower::{Call, Counted, FIRED, Grouped, Places, Rows, Stage, fired_column, unique};
use crate::nest::Unnested;
use crate::schemas::{elements_schema, table_schema};
use crate::window_node::WINDOW_COLUMNS;
use crate::windows::Windows;

/// Queries with all that they read.
#[derive(Default)]
pub(crate) struct Graph {
    pub(crate) scans: Vec<Scan>,
    /// Each takes rows of those before it.
    pub(crate) passes: Vec<Pass>,
    /// Each takes rows of those before it.
    pub(crate) groupings: Vec<Grouping>,
    pub(crate) outputs: Vec<Output>,
}

/// A table that is read.
pub(crate) struct Scan {
    pub(crate) entry: Arc<TableEntry>,
    pub(crate) table: Arc<dyn Table>,
    /// The first query that reads it.
    pub(crate) query: usize,
}

/// A stage without state, whose rows several take ([`crate::passes`]).
pub(crate) struct Pass {
    pub(crate) scan: usize,
    /// The pass before it; `None`: it takes records of the table.
    pub(crate) below: Option<usize>,
    /// Over the columns of what it takes.
    pub(crate) filters: Vec<Expr>,
    pub(crate) names: Vec<String>,
    /// Over the same, with these names.
    pub(crate) columns: Vec<Expr>,
    /// The first query that takes its rows.
    pub(crate) query: usize,
    /// What it makes of the last of these columns, which has no name: an UNNEST.
    pub(crate) elements: Option<Elements>,
}

/// What an UNNEST shows of elements.
pub(crate) struct Elements {
    pub(crate) outer: bool,
    /// With the names of the columns.
    pub(crate) shown: Vec<(String, Element)>,
    /// Of the rows that come out.
    pub(crate) schema: DFSchema,
    /// The columns of these that somebody needs, once all that take them are finished.
    pub(crate) used: BTreeSet<String>,
}

/// Rows that a grouping or an output takes.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Part {
    /// Records of a table.
    Scan {
        scan: usize,
        /// What has been made of them; the rest is over its columns.
        pass: Option<usize>,
        /// Over its columns.
        filters: Vec<Expr>,
        /// Over its columns; `None`: as they are.
        columns: Option<Vec<Expr>>,
    },
    /// What a grouping gives.
    View { grouping: usize, view: usize },
}

/// A grouping.
pub(crate) struct Grouping {
    pub(crate) parts: Vec<Part>,
    /// The columns of all parts; none if the part is a table as it is.
    pub(crate) names: Vec<String>,
    /// Those of them that it needs, once the graph is pruned.
    pub(crate) used: BTreeSet<String>,
    /// Over columns of these names.
    pub(crate) filters: Vec<Expr>,
    pub(crate) window: Option<Window>,
    /// Without HAVING, which is the views'.
    pub(crate) grouped: Grouped,
    pub(crate) counted: Counted,
    pub(crate) views: Vec<View>,
    /// The first query that needs it.
    pub(crate) query: usize,
    /// The first table below it that never ends.
    endless: Option<usize>,
    /// The same for those like it.
    fingerprint: u64,
}

/// What others take of a grouping's result.
#[derive(Debug)]
pub(crate) struct View {
    /// Over what fires, as its columns.
    pub(crate) having: Vec<Expr>,
    pub(crate) columns: Vec<Column>,
    /// The same for those like it.
    fingerprint: u64,
}

/// A column of a view.
#[derive(Debug, Clone)]
pub(crate) struct Column {
    pub(crate) name: String,
    pub(crate) expr: Expr,
    /// Whether somebody takes it.
    needed: bool,
}

/// What leaves the job at one place.
pub(crate) struct Output {
    pub(crate) parts: Vec<Part>,
    pub(crate) names: Vec<String>,
    pub(crate) limit: Option<u64>,
    pub(crate) offset: u64,
    pub(crate) sort: Option<Sort>,
    pub(crate) query: usize,
}

/// A query that goes into a graph.
pub(crate) struct Reader<'a> {
    /// Its number.
    pub(crate) query: usize,
    pub(crate) places: &'a Places,
    /// Opens a table.
    pub(crate) open: &'a dyn Fn(&TableEntry) -> Result<Arc<dyn Table>>,
}

impl Graph {
    /// Adds a query; `names` are those of the columns that it puts out.
    pub(crate) fn add(
        &mut self,
        mut stage: Stage,
        mut names: Vec<String>,
        reader: &Reader<'_>,
    ) -> Result<()> {
        let sort = stage.take_sort(&mut names);
        let (limit, offset) = (stage.limit, stage.offset);
        let parts = stage.finish()?;
        let parts = parts.iter().map(|part| self.part(part, &names, reader));
        let parts = parts.collect::<Result<Vec<_>>>()?;
        let output = Output { parts, names, limit, offset, sort, query: reader.query };
        self.check_order(&output, reader.places)?;
        self.outputs.push(output);
        Ok(())
    }

    /// That the order of an output's rows does not depend on who is first, and that all come.
    fn check_order(&self, output: &Output, places: &Places) -> Result<()> {
        let is_record = |part: &&Part| matches!(part, Part::Scan { .. });
        let grouping = |part: &Part| match part {
            Part::View { grouping, .. } => Some(&self.groupings[*grouping]),
            Part::Scan { .. } => None,
        };
        let windowed = output.parts.iter().filter_map(grouping).any(|g| g.window.is_some());
        let whole = output.parts.iter().filter_map(grouping).any(|g| g.window.is_none());
        if windowed && output.parts.iter().any(|part| is_record(&part)) {
            return Err(windows_beside_records(places));
        }
        let Some(endless) = self.endless(&output.parts) else { return Ok(()) };
        let name = &self.scans[endless].entry.name;
        if output.sort.as_ref().is_some_and(|sort| !sort.each_window) {
            return Err(endless_order(name, places));
        }
        if whole { Err(endless_part(name, places)) } else { Ok(()) }
    }

    /// The first table among all that these come from that never ends.
    fn endless(&self, parts: &[Part]) -> Option<usize> {
        parts.iter().find_map(|part| match part {
            Part::Scan { scan, .. } => (!self.scans[*scan].table.bounded()).then_some(*scan),
            Part::View { grouping, .. } => self.groupings[*grouping].endless,
        })
    }

    /// A stage that is a grouping, or over a table; `names` are those of its columns.
    fn part(&mut self, stage: &Stage, names: &[String], reader: &Reader<'_>) -> Result<Part> {
        let Some(grouped) = &stage.grouped else {
            let (scan, pass) = self.records(&stage.input, reader)?;
            let (filters, columns) = (stage.filters.clone(), Some(stage.columns.clone()));
            return Ok(Part::Scan { scan, pass, filters, columns });
        };
        let (grouping, renamed) = self.grouping(stage, grouped, reader)?;
        let having = grouped.having.iter().map(|e| rename(e, &renamed)).collect::<Result<_>>()?;
        let column = |(expr, name): (&Expr, &String)| {
            Ok(Column { name: name.clone(), expr: rename(expr, &renamed)?, needed: false })
        };
        let columns = stage.columns.iter().zip(names).map(column).collect::<Result<_>>()?;
        let (view, views) = (View::new(having, columns), &mut self.groupings[grouping].views);
        let known = views
            .iter()
            .position(|known| known.fingerprint == view.fingerprint && known.is_like(&view));
        let view = known.unwrap_or_else(|| {
            views.push(view);
            views.len() - 1
        });
        Ok(Part::View { grouping, view })
    }

    /// Where rows come from that are records of a table, or elements of these.
    fn records(&mut self, rows: &Rows, reader: &Reader<'_>) -> Result<(usize, Option<usize>)> {
        match rows {
            Rows::Table(entry) => Ok((self.scan(entry, reader)?, None)),
            Rows::Unnested(rows) => self.unnest(rows, reader),
            Rows::Stages(_) => Err(SqlError::internal("a query without state over another")),
        }
    }

    fn unnest(&mut self, rows: &Unnested, reader: &Reader<'_>) -> Result<(usize, Option<usize>)> {
        let (scan, below) = self.records(&rows.inner.input, reader)?;
        let below_elements = below.and_then(|below| self.passes[below].elements.as_ref());
        let schema = match below_elements {
            Some(elements) => elements.schema.clone(),
            None => table_schema(&self.scans[scan].entry)?,
        };
        let shown = rows.shown.iter().cloned().zip(rows.body.elements.iter().copied());
        let (outer, shown) = (rows.body.outer, shown.collect::<Vec<_>>());
        let columns = rows.inner.columns.clone();
        let schema = elements_schema(&columns, &schema, &rows.kept, &shown, outer)?;
        let pass = Pass {
            scan,
            below,
            filters: rows.inner.filters.clone(),
            names: rows.kept.clone(),
            columns,
            query: reader.query,
            elements: Some(Elements { outer, shown, schema, used: BTreeSet::new() }),
        };
        let known = self.passes.iter().position(|known| known.is_like(&pass));
        let number = known.unwrap_or_else(|| {
            self.passes.push(pass);
            self.passes.len() - 1
        });
        Ok((scan, Some(number)))
    }

    fn scan(&mut self, entry: &Arc<TableEntry>, reader: &Reader<'_>) -> Result<usize> {
        let known = self.scans.iter().position(|scan| Arc::ptr_eq(&scan.entry, entry));
        if let Some(known) = known {
            return Ok(known);
        }
        let table = (reader.open)(entry)?;
        self.scans.push(Scan { entry: entry.clone(), table, query: reader.query });
        Ok(self.scans.len() - 1)
    }

    /// The grouping of a stage, and what the columns that fire are called that have other names
    /// there.
    fn grouping(
        &mut self,
        stage: &Stage,
        grouped: &Grouped,
        reader: &Reader<'_>,
    ) -> Result<(usize, HashMap<String, String>)> {
        let (parts, names, filters) = match &stage.input {
            records @ (Rows::Table(_) | Rows::Unnested(_)) => {
                let (scan, pass) = self.records(records, reader)?;
                let filters = stage.filters.clone();
                (vec![Part::Scan { scan, pass, filters, columns: None }], vec![], vec![])
            }
            Rows::Stages(parts) => {
                let names = parts.first().map_or(vec![], |part| part.names.clone());
                let parts = parts.iter().map(|part| self.part(&part.stage, &part.names, reader));
                (parts.collect::<Result<Vec<_>>>()?, names, stage.filters.clone())
            }
        };
        let statement = reader.places.statement;
        grouped.check_ranking().map_err(|error| error.at(statement))?;
        let endless = self.endless(&parts);
        if let (false, Some(scan)) = (grouped.windowed, endless) {
            return Err(endless_group(&self.scans[scan].entry, stage, reader.places));
        }
        let window = stage.fired_windows().map(Windows::grouped);
        let (used, query) = (BTreeSet::new(), reader.query);
        let grouped = Grouped { having: vec![], ..grouped.clone() };
        let views = Vec::new();
        let fingerprint = hash_of(|state| {
            names.hash(state);
            parts.iter().for_each(|part| part.hash_into(state));
            hash_all(&filters, state);
            hash_all(&grouped.keys, state);
        });
        let new = Grouping {
            parts,
            names,
            used,
            filters,
            window,
            grouped,
            counted: stage.counted,
            views,
            query,
            endless,
            fingerprint,
        };
        let alike = |known: &Grouping| known.fingerprint == fingerprint && known.is_like(&new);
        match self.groupings.iter().position(alike) {
            Some(known) => Ok((known, self.groupings[known].take_in(new))),
            None => {
                self.groupings.push(new);
                Ok((self.groupings.len() - 1, HashMap::new()))
            }
        }
    }

    /// Leaves out what nobody needs.
    pub(crate) fn prune(&mut self) {
        for output in 0..self.outputs.len() {
            let parts = std::mem::take(&mut self.outputs[output].parts);
            parts.iter().for_each(|part| self.need(part, &|_| true));
            self.outputs[output].parts = parts;
        }
        for number in (0..self.groupings.len()).rev() {
            let grouping = &mut self.groupings[number];
            let fired = grouping.fired_used();
            grouping
                .grouped
                .aggregates
                .retain(|call| call.is_ranking() || fired.contains(&call.name));
            grouping.grouped.aggregates.iter_mut().for_each(|call| call.keep(&fired));
            let used = used_by(&grouping.grouped, &grouping.filters);
            let parts = std::mem::take(&mut grouping.parts);
            parts.iter().for_each(|part| self.need(part, &|name| used.contains(name)));
            (self.groupings[number].used, self.groupings[number].parts) = (used, parts);
        }
    }

    /// Somebody takes these columns of a part.
    fn need(&mut self, part: &Part, columns: &dyn Fn(&str) -> bool) {
        let Part::View { grouping, view } = part else { return };
        for column in &mut self.groupings[*grouping].views[*view].columns {
            column.needed |= columns(&column.name);
        }
    }
}

impl Grouping {
    /// Whether another one groups the same rows in the same way.
    fn is_like(&self, other: &Grouping) -> bool {
        let parts = |parts: &[Part], others: &[Part]| {
            parts.len() == others.len() && parts.iter().zip(others).all(|(a, b)| a.is_like(b))
        };
        (&self.names, self.window, self.grouped.windowed)
            == (&other.names, other.window, other.grouped.windowed)
            && parts(&self.parts, &other.parts)
            && all_alike(&self.filters, &other.filters)
            && all_alike(&self.grouped.keys, &other.grouped.keys)
            && self.grouped.ranks_like(&other.grouped)
    }

    /// Takes in the aggregates of another one like it. Returns what its columns are called here.
    fn take_in(&mut self, other: Grouping) -> HashMap<String, String> {
        if self.counted == Counted::Nowhere {
            self.counted = other.counted;
        }
        let (own, other) = (&mut self.grouped, other.grouped);
        let mut renamed: HashMap<_, _> =
            other.key_names.into_iter().zip(own.key_names.iter().cloned()).collect();
        let mut taken = HashSet::from(WINDOW_COLUMNS.map(str::to_string));
        taken.extend(own.key_names.iter().cloned());
        taken.extend(own.aggregates.iter().map(|call| call.name.clone()));
        for mut call in other.aggregates {
            let known = own.aggregates.iter().find(|known| known.is_like(&call));
            let name = match known {
                Some(known) => known.name.clone(),
                None => {
                    let name = unique(call.text(), &mut taken);
                    let before = std::mem::replace(&mut call.name, name.clone());
                    own.aggregates.push(call);
                    renamed.insert(before, name);
                    continue;
                }
            };
            let of = |call: &Call| call.ranked_names();
            let known = own.aggregates.iter().find(|known| known.name == name);
            renamed.extend(of(&call).into_iter().zip(known.map(of).unwrap_or_default()));
            renamed.insert(call.name, name);
        }
        renamed
    }

    /// Whether what its stage gives is seen in several ways.
    pub(crate) fn is_shared(&self) -> bool {
        self.views.len() > 1
    }

    /// Conditions on what fires that hold for all views, the first of each.
    pub(crate) fn common_having(&self) -> &[Expr] {
        let Some((first, others)) = self.views.split_first() else { return &[] };
        let common = |at: &usize| {
            let condition = first.having.get(*at);
            let same = |view: &View| alike(view.having.get(*at), condition);
            condition.is_some() && others.iter().all(same)
        };
        let common = (0..).take_while(common).count();
        &first.having[..common]
    }

    /// The columns that fire and that some view is computed of, by name.
    pub(crate) fn fired_used(&self) -> BTreeSet<String> {
        let mut used = BTreeSet::new();
        for view in &self.views {
            view.having.iter().for_each(|expr| add_columns(expr, &mut used));
            view.needed().for_each(|column| add_columns(&column.expr, &mut used));
        }
        used
    }
}

impl Output {
    /// The same number for those that are alike.
    pub(crate) fn fingerprint(&self) -> u64 {
        hash_of(|state| {
            self.names.hash(state);
            self.parts.iter().for_each(|part| part.hash_into(state));
        })
    }

    /// Whether another one is the same rows in the same columns.
    pub(crate) fn is_like(&self, other: &Output) -> bool {
        let rows = |output: &Output| (output.limit, output.offset);
        rows(self) == rows(other) && self.names == other.names && {
            self.parts.len() == other.parts.len()
                && self.parts.iter().zip(&other.parts).all(|(a, b)| a.is_like(b))
        }
    }
}

impl View {
    fn new(having: Vec<Expr>, columns: Vec<Column>) -> View {
        let fingerprint = hash_of(|state| {
            hash_all(&having, state);
            for Column { name, expr, .. } in &columns {
                (name, without_marks(expr)).hash(state);
            }
        });
        View { having, columns, fingerprint }
    }

    fn is_like(&self, other: &View) -> bool {
        let alike =
            |a: &Column, b: &Column| a.name == b.name && alike(Some(&a.expr), Some(&b.expr));
        all_alike(&self.having, &other.having)
            && self.columns.len() == other.columns.len()
            && self.columns.iter().zip(&other.columns).all(|(a, b)| alike(a, b))
    }

    /// The columns that somebody takes.
    pub(crate) fn needed(&self) -> impl Iterator<Item = &Column> {
        self.columns.iter().filter(|column| column.needed)
    }
}

impl Pass {
    /// Whether another one makes the same of the same rows.
    fn is_like(&self, other: &Pass) -> bool {
        let elements = |pass: &Pass| {
            pass.elements.as_ref().map(|elements| (elements.outer, elements.shown.clone()))
        };
        (self.scan, self.below, &self.names) == (other.scan, other.below, &other.names)
            && elements(self) == elements(other)
            && all_alike(&self.filters, &other.filters)
            && all_alike(&self.columns, &other.columns)
    }
}

impl Part {
    fn hash_into(&self, state: &mut DefaultHasher) {
        match self {
            Part::Scan { scan, pass, filters, columns } => {
                (scan, pass).hash(state);
                hash_all(filters, state);
                hash_all(columns.as_deref().unwrap_or_default(), state);
            }
            Part::View { grouping, view } => (grouping, view).hash(state),
        }
    }

    fn is_like(&self, other: &Part) -> bool {
        match (self, other) {
            (
                Part::Scan { scan, pass, filters, columns },
                Part::Scan {
                    scan: other,
                    pass: their_pass,
                    filters: their_filters,
                    columns: theirs,
                },
            ) => {
                let columns = match (columns, theirs) {
                    (Some(columns), Some(theirs)) => all_alike(columns, theirs),
                    (None, None) => true,
                    _ => false,
                };
                (scan, pass) == (other, their_pass) && columns && all_alike(filters, their_filters)
            }
            _ => self == other,
        }
    }
}

impl Call {
    pub(crate) fn is_like(&self, other: &Call) -> bool {
        (self.function, &self.result_type) == (other.function, &other.result_type)
            && all_alike(&self.arguments, &other.arguments)
            && alike(self.filter.as_ref(), other.filter.as_ref())
    }
}

fn hash_of(add: impl FnOnce(&mut DefaultHasher)) -> u64 {
    let mut state = DefaultHasher::new();
    add(&mut state);
    state.finish()
}

/// Hashes expressions, wherever they stand in the text.
fn hash_all(exprs: &[Expr], state: &mut DefaultHasher) {
    exprs.iter().for_each(|expr| without_marks(expr).hash(state));
}

/// Whether expressions are the same, wherever they stand in the text.
pub(crate) fn alike(one: Option<&Expr>, other: Option<&Expr>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => one == other || without_marks(one) == without_marks(other),
        (one, other) => one.is_none() && other.is_none(),
    }
}

fn all_alike(some: &[Expr], others: &[Expr]) -> bool {
    some.len() == others.len() && some.iter().zip(others).all(|(a, b)| alike(Some(a), Some(b)))
}

/// An expression over what fires, with other names of columns.
fn rename(expr: &Expr, names: &HashMap<String, String>) -> Result<Expr> {
    if names.iter().all(|(before, now)| before == now) {
        return Ok(expr.clone());
    }
    let renamed = expr.clone().transform_up(|e| match &e {
        Expr::Column(column) if column.relation.as_ref().is_some_and(|r| r.table() == FIRED) => {
            let name = names.get(&column.name).filter(|name| **name != column.name);
            Ok(name.map_or(Transformed::no(e.clone()), |name| Transformed::yes(fired_column(name))))
        }
        _ => Ok(Transformed::no(e)),
    })?;
    Ok(renamed.data)
}

/// The columns of its input that a grouping uses, by name.
pub(crate) fn used_by(grouped: &Grouped, filters: &[Expr]) -> BTreeSet<String> {
    let mut used = BTreeSet::new();
    let calls = &grouped.aggregates;
    let calls = calls.iter().flat_map(|call| call.arguments.iter().chain(&call.filter));
    let exprs = filters.iter().chain(&grouped.keys).chain(calls);
    exprs.for_each(|expr| add_columns(expr, &mut used));
    used
}

/// The columns of an expression, by name.
pub(crate) fn add_columns(expr: &Expr, names: &mut BTreeSet<String>) {
    names.extend(expr.column_refs().into_iter().map(|c| c.name.clone()));
}
