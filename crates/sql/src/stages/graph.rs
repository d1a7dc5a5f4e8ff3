//! The graph of queries that are planned together. Equal parts share a node: a table that several
//! queries read; a grouping, which computes the aggregates of all its queries; and a join.
//!
//! A query's HAVING, WHERE and columns over the result of a grouping or a join are a [`View`]. A
//! single view is part of the stage. Of several views, each is a stage above the grouping or join.
//! Common computations of several readers of a table are a [`Pass`].

mod expands;
mod operators;
mod pairs;

use std::hash::{DefaultHasher, Hash};

use millstream_contract::{plan::Sort, table::Table};

use crate::names::alike::{all_alike, hash_all, hash_of};
use crate::names::catalog::TableEntry;
use crate::names::scope::{Around, numbered};
use crate::names::views::{Column, View};
use crate::stages::endless::{
    endless_group, endless_join, endless_order, endless_part, endless_ranking,
    windows_beside_records,
};
use crate::stages::lower::{FIRED, Fires, Grouped, Places, Rows, Stage, fired_column};
use crate::stages::{joined::Joined, lower::column_of, nest::Inner};
use crate::syntax::prelude::*;
pub(crate) use expands::{Elements, Expands, LookedUp, Makes};
pub(crate) use operators::{Body, Operator, Side, used_by};

/// Queries with all their nodes.
#[derive(Default)]
pub(crate) struct Graph {
    pub(crate) scans: Vec<Scan>,
    /// Passes, each behind the passes whose rows it takes.
    pub(crate) passes: Vec<Pass>,
    /// Operators, each behind the operators whose rows it takes.
    pub(crate) operators: Vec<Operator>,
    pub(crate) outputs: Vec<Output>,
    /// By name: the operators that would have the name, in the order of the text.
    named: HashMap<String, Vec<usize>>,
}

/// A table that is read.
pub(crate) struct Scan {
    pub(crate) entry: Arc<TableEntry>,
    pub(crate) table: Arc<dyn Table>,
    /// The first query that reads this table.
    pub(crate) query: usize,
}

/// A stage without state, whose rows several take ([`crate::stages::passes`]).
pub(crate) struct Pass {
    pub(crate) scan: usize,
    /// The pass before it; `None`: it takes records of the table.
    pub(crate) below: Option<usize>,
    /// Conditions over the columns of the input.
    pub(crate) filters: Vec<Expr>,
    pub(crate) names: Vec<String>,
    /// Over the same, with these names.
    pub(crate) columns: Vec<Expr>,
    /// The first query that takes the pass's rows.
    pub(crate) query: usize,
    /// Expansion of each row into several rows; `None`: each row stays a single row.
    pub(crate) expands: Option<Expands>,
}

/// Rows that an operator or an output takes.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Part {
    /// Records of a table.
    Scan {
        scan: usize,
        /// Pass over the records; filters and columns refer to the pass's columns.
        pass: Option<usize>,
        /// Over its columns.
        filters: Vec<Expr>,
        /// Over its columns; `None`: as they are.
        columns: Option<Vec<Expr>>,
    },
    /// A view of an operator's result.
    View { operator: usize, view: usize },
}

/// Rows that leave the job through a single sink.
pub(crate) struct Output {
    pub(crate) parts: Vec<Part>,
    pub(crate) names: Vec<String>,
    pub(crate) limit: Option<u64>,
    pub(crate) offset: u64,
    pub(crate) sort: Option<Sort>,
    pub(crate) query: usize,
    /// The name of the sink.
    pub(crate) name: String,
}

/// A query that goes into a graph.
pub(crate) struct Reader<'a> {
    /// Its number.
    pub(crate) query: usize,
    /// The name of its sink.
    pub(crate) name: &'a str,
    pub(crate) places: &'a Places,
    /// Opens a table.
    pub(crate) open: &'a dyn Fn(&TableEntry) -> Result<Arc<dyn Table>>,
}

impl Graph {
    /// Adds a query; `names` are the names of the output columns.
    pub(crate) fn add(
        &mut self,
        mut stage: Stage,
        mut names: Vec<String>,
        reader: &Reader<'_>,
    ) -> Result<()> {
        let (sort, why_whole) = stage.take_sort(&mut names, reader.places);
        let (limit, offset) = (stage.limit, stage.offset);
        let within = |part: Stage| part.within(Some(Around::Root(reader.name)));
        let parts = stage.finish()?.into_iter().map(within);
        let parts = parts.map(|part| self.part(&part, &names, reader));
        let parts = parts.collect::<Result<Vec<_>>>()?;
        let (query, name) = (reader.query, reader.name.to_string());
        let output = Output { parts, names, limit, offset, sort, query, name };
        self.check_order(&output, why_whole, reader.places)?;
        self.outputs.push(output);
        Ok(())
    }

    /// Checks that the order of an output's rows does not depend on the order of arrival, and that
    /// the output is complete. `why_whole`: the reason for windows in another order than the
    /// query's.
    fn check_order(
        &self,
        output: &Output,
        why_whole: Option<SqlError>,
        places: &Places,
    ) -> Result<()> {
        let is_record = |part: &&Part| matches!(part, Part::Scan { .. });
        let operator = |part: &Part| match part {
            Part::View { operator, .. } => Some(&self.operators[*operator]),
            Part::Scan { .. } => None,
        };
        let windowed = output.parts.iter().filter_map(operator).any(|o| o.window.is_some());
        let whole = output.parts.iter().filter_map(operator).any(|o| o.window.is_none());
        if windowed && output.parts.iter().any(|part| is_record(&part)) {
            return Err(windows_beside_records(places));
        }
        let Some(endless) = self.endless(&output.parts) else { return Ok(()) };
        let name = &self.scans[endless].entry.name;
        if whole {
            return Err(endless_part(name, places));
        }
        match &output.sort {
            Some(sort) if !sort.each_window => {
                Err(why_whole.unwrap_or_else(|| endless_order(name, places)))
            }
            _ => Ok(()),
        }
    }

    /// The first table among all that these come from that never ends.
    fn endless(&self, parts: &[Part]) -> Option<usize> {
        parts.iter().find_map(|part| match part {
            Part::Scan { scan, .. } => (!self.scans[*scan].table.bounded()).then_some(*scan),
            Part::View { operator, .. } => self.operators[*operator].endless,
        })
    }

    /// A stage that has an operator, or is over a table; `names` are the names of the columns.
    fn part(&mut self, stage: &Stage, names: &[String], reader: &Reader<'_>) -> Result<Part> {
        let Some(fires) = &stage.fires else {
            let (scan, pass) = self.records(&stage.input, reader)?;
            let (filters, columns) = (stage.filters.clone(), Some(stage.columns.clone()));
            return Ok(Part::Scan { scan, pass, filters, columns });
        };
        let (operator, renamed) = self.operator(stage, fires, reader)?;
        let having = fires.having().iter().map(|e| rename(e, &renamed)).collect::<Result<_>>()?;
        let column = |(expr, name): (&Expr, &String)| {
            Ok(Column { name: name.clone(), expr: rename(expr, &renamed)?, needed: false })
        };
        let columns = stage.columns.iter().zip(names).map(column).collect::<Result<_>>()?;
        let (view, views) = (View::new(having, columns), &mut self.operators[operator].views);
        let known = views
            .iter()
            .position(|known| known.fingerprint == view.fingerprint && known.is_like(&view));
        let view = known.unwrap_or_else(|| {
            views.push(view);
            views.len() - 1
        });
        Ok(Part::View { operator, view })
    }

    /// Where rows come from that are records of a table, or elements of these.
    fn records(&mut self, rows: &Rows, reader: &Reader<'_>) -> Result<(usize, Option<usize>)> {
        match rows {
            Rows::Table(entry) => Ok((self.scan(entry, reader)?, None)),
            Rows::Expanded(rows) => self.expanded(rows, reader),
            Rows::Stages(_) | Rows::Sides(_) => {
                Err(SqlError::internal("a query without state over another"))
            }
        }
    }

    fn scan(&mut self, entry: &Arc<TableEntry>, reader: &Reader<'_>) -> Result<usize> {
        let known = self.scans.iter().position(|scan| scan.entry.is(entry));
        if let Some(known) = known {
            return Ok(known);
        }
        let table = (reader.open)(entry)?;
        self.scans.push(Scan { entry: entry.clone(), table, query: reader.query });
        Ok(self.scans.len() - 1)
    }

    /// The operator of a stage, and what the columns that fire are called that have other names
    /// there.
    fn operator(
        &mut self,
        stage: &Stage,
        fires: &Fires,
        reader: &Reader<'_>,
    ) -> Result<(usize, HashMap<String, String>)> {
        let sides = self.sides(stage, reader)?;
        let endless_sides = sides.iter().map(|side| self.endless(&side.parts));
        let endless_sides: Vec<Option<usize>> = endless_sides.collect();
        let endless = endless_sides.iter().copied().flatten().next();
        let body = match fires {
            Fires::Grouped(grouped) => {
                let statement = reader.places.statement;
                grouped.check_ranking().map_err(|error| error.at(statement))?;
                if let (false, Some(scan)) = (grouped.windowed, endless) {
                    let table = &self.scans[scan].entry;
                    return Err(match grouped.ranking_name() {
                        Some(name) => endless_ranking(table, name, reader.places),
                        None => endless_group(table, stage, reader.places),
                    });
                }
                Body::Grouped(Grouped { having: vec![], ..grouped.clone() })
            }
            Fires::Joined(joined) => {
                if let (Some(unwindowed), Some(scan)) = (&joined.unwindowed, endless) {
                    let ends = [0, 1].map(|side| endless_sides.get(side) == Some(&None));
                    return Err(endless_join(&self.scans[scan].entry, unwindowed, ends));
                }
                Body::Joined(Box::new(Joined { having: vec![], ..Joined::clone(joined) }))
            }
            Fires::Expanded(expanding) => Body::Expanded(self.expanding(expanding, reader)?),
        };
        let fingerprint = hash_of(|state| {
            sides.iter().for_each(|side| side.hash_into(state));
            body.hash_into(state);
        });
        let new = Operator {
            sides,
            window: stage.operator_window(),
            body,
            counted: stage.counted,
            views: vec![],
            query: reader.query,
            names: BTreeSet::new(),
            endless,
            fingerprint,
        };
        let alike = |known: &Operator| known.fingerprint == fingerprint && known.is_like(&new);
        let (operator, renamed) = match self.operators.iter().position(alike) {
            Some(known) => (known, self.operators[known].take_in(new)),
            None => {
                self.operators.push(new);
                (self.operators.len() - 1, HashMap::new())
            }
        };
        self.name(operator, &stage.scope.name(fires.kind()));
        Ok((operator, renamed))
    }

    /// Names an operator. Only operators of one place and one kind need numbers.
    fn name(&mut self, operator: usize, name: &str) {
        let equals = self.named.entry(name.into()).or_default();
        let at = equals.iter().position(|known| *known == operator).unwrap_or(equals.len());
        if at == equals.len() {
            equals.push(operator);
        }
        self.operators[operator].names.insert(numbered(name, at + 1));
    }

    /// Inputs of a stage's operator.
    fn sides(&mut self, stage: &Stage, reader: &Reader<'_>) -> Result<Vec<Side>> {
        let filters = stage.filters.clone();
        let mut sides = Vec::new();
        match &stage.input {
            records @ (Rows::Table(_) | Rows::Expanded(_)) => {
                let (scan, pass) = self.records(records, reader)?;
                let parts = vec![Part::Scan { scan, pass, filters, columns: None }];
                sides.push(Side::new(parts, vec![], vec![]));
            }
            Rows::Stages(parts) => sides.push(self.side(parts, filters, reader)?),
            Rows::Sides(both) => {
                for parts in both.iter() {
                    sides.push(self.side(parts, vec![], reader)?);
                }
            }
        }
        Ok(sides)
    }

    fn side(&mut self, of: &[Inner], filters: Vec<Expr>, reader: &Reader<'_>) -> Result<Side> {
        let names = of.first().map_or(vec![], |part| part.names.clone());
        let parts = of.iter().map(|part| self.part(&part.stage, &part.names, reader));
        Ok(Side::new(parts.collect::<Result<_>>()?, names, filters))
    }

    /// Removes columns without a reader.
    pub(crate) fn prune(&mut self) {
        for output in 0..self.outputs.len() {
            let parts = std::mem::take(&mut self.outputs[output].parts);
            parts.iter().for_each(|part| self.need(part, &|_| true));
            self.outputs[output].parts = parts;
        }
        for number in (0..self.operators.len()).rev() {
            let operator = &mut self.operators[number];
            let fired = operator.fired_used();
            operator.body.keep(&fired);
            for side in 0..operator.sides.len() {
                let operator = &mut self.operators[number];
                let used = operator.used_of(side, &fired);
                let parts = std::mem::take(&mut operator.sides[side].parts);
                parts.iter().for_each(|part| self.need(part, &|name| used.contains(name)));
                let side = &mut self.operators[number].sides[side];
                (side.used, side.parts) = (used, parts);
            }
        }
    }

    /// Somebody takes these columns of a part.
    fn need(&mut self, part: &Part, columns: &dyn Fn(&str) -> bool) {
        let Part::View { operator, view } = part else { return };
        for column in &mut self.operators[*operator].views[*view].columns {
            column.needed |= columns(&column.name);
        }
    }
}

impl Output {
    /// Hash; equal for outputs that are alike.
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

impl Pass {
    /// Whether another one makes the same of the same rows.
    fn is_like(&self, other: &Pass) -> bool {
        let expands = match (&self.expands, &other.expands) {
            (Some(own), Some(other)) => own.is_like(other),
            (own, other) => own.is_none() && other.is_none(),
        };
        (self.scan, self.below, &self.names) == (other.scan, other.below, &other.names)
            && expands
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
            Part::View { operator, view } => (operator, view).hash(state),
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

/// An expression over what fires, with other names of columns.
fn rename(expr: &Expr, names: &HashMap<String, String>) -> Result<Expr> {
    if names.iter().all(|(before, now)| before == now) {
        return Ok(expr.clone());
    }
    Ok(expr.clone().replaced(|e| {
        let name = column_of(FIRED, e).and_then(|column| names.get(column));
        Ok(name.map(fired_column))
    })?)
}
