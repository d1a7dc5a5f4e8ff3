//! Stages over stages. A query that groups the rows of a grouping, or assigns windows to them,
//! becomes a stage of its own, whose input is these rows. So do the queries of a UNION ALL.
//!
//! The rows of a window have the window's time. A second window function over `window_time` assigns
//! the rows to other windows. Without a second function the rows keep their window:
//! `GROUP BY window_start, window_end` then groups by the same window again.

use millstream_contract::plan::{self, Unnest, Window};

use crate::expr::window_node::{Assignment, WINDOW_COLUMNS};
use crate::names::catalog::{INPUT, TableEntry, input_column};
use crate::names::window_kinds::WindowKind;
use crate::stages::lower::column_of;
use crate::stages::lower::{Places, Rows, Stage, unique, window_column};
use crate::stages::windows::assigned::{Assigned, Windows};
use crate::syntax::prelude::*;

/// A stage that is an input of another stage.
#[derive(Debug, Clone)]
pub(crate) struct Inner {
    pub(crate) stage: Stage,
    /// Of its columns.
    pub(crate) names: Vec<String>,
}

/// Rows that an UNNEST or a lookup gives: any number for each record of a table.
#[derive(Debug, Clone)]
pub(crate) struct Expanded {
    /// The input, without state; for an UNNEST, the last column is the array.
    pub(crate) inner: Stage,
    /// The names of the kept columns, which come first.
    pub(crate) kept: Vec<String>,
    /// The names of what is shown of the elements, or of the side table.
    pub(crate) shown: Vec<String>,
    pub(crate) by: By,
}

/// Expansion of records into rows.
#[derive(Debug, Clone)]
pub(crate) enum By {
    Elements(Unnest),
    Lookup(Box<Looked>),
}

/// Expansion of results into rows.
#[derive(Debug, Clone)]
pub(crate) struct Expanding {
    /// The names of the columns that are kept, which come first.
    pub(crate) kept: Vec<String>,
    /// The names of what is shown of the elements, or of the side table.
    pub(crate) shown: Vec<String>,
    pub(crate) by: By,
    /// The columns of what comes out that hold those of the window, if there are such.
    pub(crate) bounds: [Option<Expr>; 3],
    /// Whether they come from windows, and what these are, or the slices of an interval join.
    pub(crate) windowed: bool,
    pub(crate) window: Option<plan::Window>,
    /// The column that is their time, if they come from an interval join.
    pub(crate) time: Option<Expr>,
    /// Conditions on what comes out.
    pub(crate) having: Vec<Expr>,
}

/// A lookup: the rows of a side table that match.
#[derive(Debug, Clone)]
pub(crate) struct Looked {
    pub(crate) entry: Arc<TableEntry>,
    /// Conditions on the table's rows, and the shown columns, over the table's columns ([`INPUT`]).
    pub(crate) filters: Vec<Expr>,
    pub(crate) columns: Vec<Expr>,
    /// Whether records that nothing matches are given, next to NULLs.
    pub(crate) outer: bool,
    /// Pairs of equal values, over the kept columns, and over the shown columns.
    pub(crate) keys: Vec<[Expr; 2]>,
    pub(crate) nulls_are_equal: bool,
    /// Further conditions, over both.
    pub(crate) condition: Vec<Expr>,
    /// Where the time stands, for messages.
    pub(crate) place: Option<Place>,
}

/// An expression over columns of these names ([`INPUT`]), with what they are in their place.
pub(crate) fn written(expr: &Expr, names: &[String], columns: &[Expr]) -> Result<Expr> {
    Ok(expr.clone().replaced(|e| {
        let name = column_of(INPUT, e);
        let position = name.and_then(|column| names.iter().position(|name| name == column));
        Ok(position.and_then(|position| columns.get(position)).cloned())
    })?)
}

impl Inner {
    /// An expression over this stage's columns, rewritten over the inputs of these columns.
    fn written(&self, expr: &Expr) -> Result<Expr> {
        written(expr, &self.names, &self.stage.columns)
    }
}

impl Stage {
    /// A stage over the rows of this one, if it has state; `schema` names its columns.
    pub(crate) fn over_groups(self, schema: &DFSchema) -> Stage {
        if self.fires.is_none() {
            return self;
        }
        let bounds = self.fired_bounds();
        let mut taken = HashSet::new();
        let (mut names, mut columns) = (Vec::new(), Vec::new());
        let mut held = [None, None, None];
        for (field, column) in schema.fields().iter().zip(&self.columns) {
            let name = unique(field.name().clone(), &mut taken);
            let is_bound = |bound: &Option<Expr>| bound.as_ref() == Some(column);
            columns.push(match bounds.iter().position(is_bound) {
                Some(bound) => {
                    held[bound].get_or_insert_with(|| name.clone());
                    window_column(WINDOW_COLUMNS[bound])
                }
                None => input_column(&name),
            });
            names.push(name);
        }
        let window = self.fired_windows().map(|fired| Windows::inherited(fired.kind, held));
        Stage { window, ..Stage::over(Rows::Stages(vec![Inner { stage: self, names }]), columns) }
    }

    /// Assigns windows to this stage, whose columns are the columns of `input`.
    pub(crate) fn with_windows(
        mut self,
        assignment: &Assignment,
        input: &DFSchema,
        places: &Places,
    ) -> Result<Stage> {
        let Assignment { time, window, partition, place } = assignment;
        self.refuse_after_limit(WindowKind::of(window).name(), places)?;
        if self.window.as_ref().is_some_and(|windows| windows.assignment().is_some()) {
            return Err(SqlError::unsupported("a window over rows that have a window already")
                .at(*place)
                .help(
                    "group by the first one: GROUP BY window_start, window_end, window_time, …\n\
                     select window_time AS inner_time, and assign the second one to the result, by \
                     DESCRIPTOR(inner_time)",
                ));
        }
        let field = input.field(*time);
        self.by_clock(*time, field.name())?;
        self.check_time(&self.columns[*time], field).map_err(|error| error.at(*place))?;
        self.slice_sessions(window);
        // The window that rows come from is told by their own columns from now on.
        let columns = std::mem::take(&mut self.columns);
        self.columns =
            columns.into_iter().map(|c| self.without_window(c)).collect::<Result<_>>()?;
        self.drop_windows()?;
        let records = match window {
            Window::Session(_) => {
                self.columns.iter().cloned().zip(input.fields().iter().cloned()).collect()
            }
            _ => vec![],
        };
        let assigned = Assigned {
            records,
            time: self.columns[*time].clone(),
            partition: partition.iter().map(|at| self.columns[*at].clone()).collect(),
            below: self.filters.len(),
            place: *place,
        };
        self.window = Some(Windows::assigned(*window, assigned));
        self.columns.extend(WINDOW_COLUMNS.map(window_column));
        Ok(self)
    }

    /// Folds a stage without state into its input stages: the conditions become conditions (or
    /// HAVING) of the input stages, which also compute the columns.
    pub(crate) fn folded(self) -> Result<Vec<Stage>> {
        let parts = match self.input {
            Rows::Stages(parts) if self.fires.is_none() => parts,
            input => return Ok(vec![Stage { input, ..self }]),
        };
        let within = |part: Inner| {
            let columns = self.columns.iter().map(|expr| part.written(expr));
            let columns = columns.collect::<Result<_>>()?;
            let filters = self.filters.iter().map(|expr| part.written(expr));
            let filters = filters.collect::<Result<Vec<_>>>()?;
            let mut stage = Stage { columns, ..part.stage };
            match &mut stage.fires {
                Some(fires) => fires.having_mut().extend(filters),
                None => stage.filters.extend(filters),
            }
            Ok(stage)
        };
        parts.into_iter().map(within).collect()
    }
}
