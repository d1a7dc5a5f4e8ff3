//! Stages over stages. A query that groups the rows of a grouping, or assigns windows to them, is a
//! stage of its own, whose input is these rows.
//!
//! The rows of a window have the window's time. A second TUMBLE over `window_time` assigns them to
//! longer windows. Without a second TUMBLE they keep their window: `GROUP BY window_start,
//! window_end` over them groups by the same window again.

use std::collections::BTreeSet;

use datafusion_common::DFSchema;
use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_expr::Expr;
use millstream_contract::plan::Tumble;

use crate::assemble::add_columns;
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

impl Inner {
    /// With those of its columns that have one of these names, and the aggregates for them.
    pub(crate) fn pruned(&self, used: &BTreeSet<String>) -> Inner {
        let mut stage = self.stage.clone();
        let columns = self.names.iter().zip(std::mem::take(&mut stage.columns));
        let used = columns.filter(|(name, _)| used.contains(*name));
        let (names, columns) = used.map(|(name, column)| (name.clone(), column)).unzip();
        stage.columns = columns;
        if let Some(grouped) = &mut stage.grouped {
            let mut used = BTreeSet::new();
            let exprs = stage.columns.iter().chain(&grouped.having);
            exprs.for_each(|expr| add_columns(expr, &mut used));
            grouped.aggregates.retain(|call| used.contains(&call.name));
        }
        Inner { stage, names }
    }

    /// What one of its columns is, by its name.
    fn column(&self, name: &str) -> Option<&Expr> {
        let position = self.names.iter().position(|known| known == name)?;
        self.stage.columns.get(position)
    }
}

impl Stage {
    /// A stage over the rows of this one, if this one groups; `schema` names its columns.
    pub(crate) fn over_groups(self, schema: &DFSchema) -> Stage {
        let Some(grouped) = &self.grouped else { return self };
        let tumble = self.window.as_ref().filter(|_| grouped.windowed).map(|window| window.tumble);
        let mut taken = Vec::new();
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
        let inherited = |tumble| Window { tumble, bounds: Bounds::Inherited(bounds) };
        Stage {
            window: tumble.map(inherited),
            input: Rows::Stage(Box::new(Inner { stage: self, names })),
            columns,
            filters: vec![],
            grouped: None,
            order: None,
            limit: None,
            offset: 0,
        }
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

    /// A window's time must be the event time of the rows, as it is.
    fn check_time(&self, node: &TumbleNode) -> Result<()> {
        let field = node.input.schema().field(node.time);
        match &self.input {
            Rows::Table(_) => self.check_time_of_table(node),
            Rows::Stage(_) if self.columns[node.time] == window_column("window_time") => Ok(()),
            Rows::Stage(inner) if inner.stage.grouped.as_ref().is_some_and(|g| g.windowed) => {
                Err(SqlError::unsupported(format!(
                    "'{}' is not the event time of a window's result",
                    field.name()
                ))
                .at(node.place)
                .help(
                    "that is window_time: select it (and GROUP BY it, too) in the query before, and \
                     name it in DESCRIPTOR(…)",
                ))
            }
            Rows::Stage(_) => Err(SqlError::unsupported(
                "what a GROUP BY without a window gives has no event time",
            )
            .at(node.place)
            .help(
                "group by a window there, too: FROM TABLE(TUMBLE(…)) with GROUP BY window_start, \
                 window_end, window_time, …",
            )),
        }
    }

    /// As a part of the stage whose rows it takes, if it has no state itself: its conditions are
    /// more of HAVING, its columns are computed when that one fires.
    pub(crate) fn folded(self) -> Result<Stage> {
        let inner = match self.input {
            Rows::Stage(inner) if self.grouped.is_none() => inner,
            input => return Ok(Stage { input, ..self }),
        };
        let written = |expr: Expr| {
            let written = expr.transform_up(|e| {
                let Expr::Column(column) = &e else { return Ok(Transformed::no(e)) };
                if column.relation.as_ref().is_none_or(|r| r.table() != INPUT) {
                    return Ok(Transformed::no(e));
                }
                let column = inner.column(&column.name).cloned();
                Ok(column.map_or(Transformed::no(e), Transformed::yes))
            })?;
            Ok::<Expr, SqlError>(written.data)
        };
        let columns = self.columns.into_iter().map(written).collect::<Result<_>>()?;
        let filters: Vec<Expr> = self.filters.into_iter().map(written).collect::<Result<_>>()?;
        let mut stage = inner.stage.clone();
        stage.columns = columns;
        if let Some(grouped) = &mut stage.grouped {
            grouped.having.extend(filters);
        }
        Ok(stage)
    }
}
