//! Stages over stages. A query that groups the rows of a grouping, or assigns windows to them,
//! becomes a stage of its own, whose input is these rows. So do the queries of a UNION ALL.
//!
//! The rows of a window have the window's time. A second TUMBLE over `window_time` assigns them to
//! longer windows. Without a second TUMBLE they keep their window: `GROUP BY window_start,
//! window_end` over them groups by the same window again.

use std::collections::HashSet;

use datafusion_common::DFSchema;
use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_expr::Expr;
use millstream_contract::plan::{Tumble, Unnest};

use crate::catalog::{INPUT, input_column};
use crate::error::{Result, SqlError};
use crate::lower::{Places, Rows, Stage, fired_column, unique, window_column};
use crate::scalars::{WindowBound, window_bound};
use crate::tumble::{TumbleNode, WINDOW_COLUMNS};

/// A stage whose rows another one takes.
#[derive(Debug, Clone)]
pub(crate) struct Inner {
    pub(crate) stage: Stage,
    /// Of its columns.
    pub(crate) names: Vec<String>,
}

/// Rows that an UNNEST gives: those of a table, with a column of elements.
#[derive(Debug, Clone)]
pub(crate) struct Unnested {
    /// What it takes, without state; its last column is the array.
    pub(crate) inner: Stage,
    /// The names of its other columns, which come first.
    pub(crate) kept: Vec<String>,
    /// The names of what is shown of the elements.
    pub(crate) shown: Vec<String>,
    pub(crate) body: Unnest,
}

/// The window that each row of a stage's input belongs to.
#[derive(Debug, Clone)]
pub(crate) struct Window {
    pub(crate) tumble: Tumble,
    bounds: Bounds,
}

/// What tells of a row's window.
#[derive(Debug, Clone)]
enum Bounds {
    /// TUMBLE assigns it by this time.
    Assigned(Expr),
    /// The row comes from it; the names of columns that hold [`WINDOW_COLUMNS`], if there are such.
    Inherited([Option<String>; 3]),
}

impl Window {
    pub(crate) fn assigned(tumble: Tumble, time: Expr) -> Window {
        Window { tumble, bounds: Bounds::Assigned(time) }
    }

    /// That of rows which come from it; `bounds` are the names of the columns that hold
    /// [`WINDOW_COLUMNS`].
    pub(crate) fn inherited(tumble: Tumble, bounds: [Option<String>; 3]) -> Window {
        Window { tumble, bounds: Bounds::Inherited(bounds) }
    }

    /// The time by which TUMBLE assigns it.
    pub(crate) fn time(&self) -> Option<&Expr> {
        match &self.bounds {
            Bounds::Assigned(time) => Some(time),
            Bounds::Inherited(_) => None,
        }
    }

    /// One of [`WINDOW_COLUMNS`] over the stage's input.
    pub(crate) fn column(&self, name: &str) -> Option<Expr> {
        let position = WINDOW_COLUMNS.iter().position(|column| *column == name)?;
        match &self.bounds {
            Bounds::Assigned(time) => {
                let bounds = [WindowBound::Start, WindowBound::End, WindowBound::Time];
                Some(window_bound(bounds[position], self.tumble, time.clone()))
            }
            Bounds::Inherited(names) => names[position].as_deref().map(input_column),
        }
    }
}

/// An expression over columns of these names ([`INPUT`]), with what they are in their place.
pub(crate) fn written(expr: &Expr, names: &[String], columns: &[Expr]) -> Result<Expr> {
    let written = expr.clone().transform_up(|e| {
        let Expr::Column(column) = &e else { return Ok(Transformed::no(e)) };
        if column.relation.as_ref().is_none_or(|r| r.table() != INPUT) {
            return Ok(Transformed::no(e));
        }
        let position = names.iter().position(|name| *name == column.name);
        let column = position.and_then(|position| columns.get(position)).cloned();
        Ok(column.map_or(Transformed::no(e), Transformed::yes))
    })?;
    Ok(written.data)
}

impl Inner {
    /// An expression over its columns, over what they are computed of.
    fn written(&self, expr: &Expr) -> Result<Expr> {
        written(expr, &self.names, &self.stage.columns)
    }
}

impl Stage {
    /// A stage over the rows of this one, if this one groups; `schema` names its columns.
    pub(crate) fn over_groups(self, schema: &DFSchema) -> Stage {
        let Some(grouped) = &self.grouped else { return self };
        let tumble = self.window.as_ref().filter(|_| grouped.windowed).map(|window| window.tumble);
        let mut taken = HashSet::new();
        let (mut names, mut columns) = (Vec::new(), Vec::new());
        let mut bounds = [None, None, None];
        for (field, column) in schema.fields().iter().zip(&self.columns) {
            let name = unique(field.name().clone(), &mut taken);
            let is_bound = |bound: &&str| tumble.is_some() && *column == fired_column(*bound);
            columns.push(match WINDOW_COLUMNS.iter().position(is_bound) {
                Some(bound) => {
                    bounds[bound].get_or_insert_with(|| name.clone());
                    window_column(WINDOW_COLUMNS[bound])
                }
                None => input_column(&name),
            });
            names.push(name);
        }
        let window = tumble.map(|tumble| Window::inherited(tumble, bounds));
        Stage { window, ..Stage::over(Rows::Stages(vec![Inner { stage: self, names }]), columns) }
    }

    /// What TUMBLE adds to this stage, over whose plan it stands.
    pub(crate) fn with_window(mut self, node: &TumbleNode, places: &Places) -> Result<Stage> {
        self.refuse_after_limit("TUMBLE", places)?;
        if self.window.as_ref().is_some_and(|window| window.time().is_some()) {
            return Err(SqlError::unsupported("a window over rows that have a window already")
                .at(node.place)
                .help(
                    "group by the first one: GROUP BY window_start, window_end, window_time, …\n\
                     and assign the second one to the result, by DESCRIPTOR(window_time)",
                ));
        }
        self.check_time(node)?;
        // The window that rows come from is told by their own columns from now on.
        let columns = std::mem::take(&mut self.columns);
        self.columns =
            columns.into_iter().map(|c| self.without_window(c)).collect::<Result<_>>()?;
        let filters = std::mem::take(&mut self.filters);
        self.filters =
            filters.into_iter().map(|f| self.without_window(f)).collect::<Result<_>>()?;
        self.window = Some(Window::assigned(node.window(), self.columns[node.time].clone()));
        self.columns.extend(WINDOW_COLUMNS.map(window_column));
        Ok(self)
    }

    /// As parts of the stages whose rows it takes, if it has no state itself: its conditions are
    /// more of theirs, or of HAVING, and its columns are computed where theirs are.
    pub(crate) fn folded(self) -> Result<Vec<Stage>> {
        let parts = match self.input {
            Rows::Stages(parts) if self.grouped.is_none() => parts,
            input => return Ok(vec![Stage { input, ..self }]),
        };
        let within = |part: Inner| {
            let columns = self.columns.iter().map(|expr| part.written(expr));
            let columns = columns.collect::<Result<_>>()?;
            let filters = self.filters.iter().map(|expr| part.written(expr));
            let filters = filters.collect::<Result<Vec<_>>>()?;
            let mut stage = Stage { columns, ..part.stage };
            match &mut stage.grouped {
                Some(grouped) => grouped.having.extend(filters),
                None => stage.filters.extend(filters),
            }
            Ok(stage)
        };
        parts.into_iter().map(within).collect()
    }
}
