//! `UNION ALL`: the rows of several queries. Each query stays a stage of its own, a grouping or the
//! records of a table. A stage that takes the rows of the union takes them from all of these.

use std::collections::HashSet;

use datafusion_expr::{Expr, LogicalPlan, Union};
use millstream_contract::plan::Tumble;

use crate::catalog::input_column;
use crate::error::{Result, SqlError};
use crate::lower::{Places, Rows, Stage, fired_column, unique, window_column};
use crate::nest::{Inner, Window};
use crate::tumble::WINDOW_COLUMNS;

impl Stage {
    pub(crate) fn of_union(union: &Union, places: &Places) -> Result<Stage> {
        let mut parts = Vec::new();
        for query in queries(union) {
            let stage = Stage::new(query, places)?;
            stage.refuse_in_union(places)?;
            parts.extend(stage.finish()?);
        }
        let mut taken = HashSet::new();
        let fields = union.schema.fields().iter();
        let names = fields.map(|f| unique(f.name().clone(), &mut taken)).collect();
        Stage::over_all(parts, names)
    }

    /// A stage over the rows of all of these, whose columns have these names.
    pub(crate) fn over_all(parts: Vec<Stage>, names: Vec<String>) -> Result<Stage> {
        let tumble = common_window(&parts);
        let mut bounds = [None, None, None];
        let column = |(position, name): (usize, &String)| {
            let bound = WINDOW_COLUMNS.iter().position(|bound| {
                let is_bound =
                    |part: &Stage| part.columns.get(position) == Some(&fired_column(*bound));
                tumble.is_some() && parts.iter().all(is_bound)
            });
            match bound {
                Some(bound) => {
                    bounds[bound].get_or_insert_with(|| name.clone());
                    window_column(WINDOW_COLUMNS[bound])
                }
                None => input_column(name),
            }
        };
        let columns: Vec<Expr> = names.iter().enumerate().map(column).collect();
        if parts.iter().any(|part| part.columns.len() != columns.len()) {
            return Err(SqlError::internal("a UNION ALL of different numbers of columns"));
        }
        let inner = |stage| Inner { stage, names: names.clone() };
        let parts = parts.into_iter().map(inner).collect();
        let window = tumble.map(|tumble| Window::inherited(tumble, bounds));
        Ok(Stage { window, ..Stage::over(Rows::Stages(parts), columns) })
    }

    /// Refuses what only the end of a whole query may have.
    fn refuse_in_union(&self, places: &Places) -> Result<()> {
        let limited = self.limit.is_some() || self.offset > 0;
        let (what, place) = match (limited, &self.order) {
            (true, _) => ("a LIMIT", places.last_limit),
            (false, Some(_)) => ("an ORDER BY", places.last_order_by),
            (false, None) => return Ok(()),
        };
        Err(SqlError::unsupported(format!("{what} within a query of a UNION ALL does not run"))
            .at(place)
            .help("put it at the end, where it is for all rows; or write a statement of its own"))
    }
}

/// The queries of a UNION ALL, also where it is written within another.
pub(crate) fn queries(union: &Union) -> Vec<&LogicalPlan> {
    let (mut queries, mut open) = (Vec::new(), vec![]);
    open.extend(union.inputs.iter().rev());
    while let Some(plan) = open.pop() {
        match plan.as_ref() {
            LogicalPlan::Union(union) => open.extend(union.inputs.iter().rev()),
            other => queries.push(other),
        }
    }
    queries
}

/// The window that rows of all parts come from, if it is one.
fn common_window(parts: &[Stage]) -> Option<Tumble> {
    let window = |part: &Stage| {
        let windowed = part.grouped.as_ref().is_some_and(|grouped| grouped.windowed);
        part.window.as_ref().filter(|_| windowed).map(|window| window.tumble)
    };
    let mut windows = parts.iter().map(window);
    let first = windows.next()??;
    windows.all(|window| window == Some(first)).then_some(first)
}
