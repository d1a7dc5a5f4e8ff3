//! `UNION ALL`: the rows of several queries. Each query stays a stage of its own, a grouping or the
//! records of a table. A stage that takes the rows of the union takes them from all of these.

use datafusion_expr::Union;
use millstream_contract::plan;

use crate::expr::window_node::WINDOW_COLUMNS;
use crate::names::catalog::input_column;
use crate::stages::lower::{Places, Rows, Stage, unique, window_column};
use crate::stages::{nest::Inner, windows::assigned::Windows};
use crate::syntax::prelude::*;

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
        let windows = common_windows(&parts);
        let bounds: Vec<_> = parts.iter().map(Stage::fired_bounds).collect();
        let mut held = [None, None, None];
        let column = |(position, name): (usize, &String)| {
            let bound = (0..WINDOW_COLUMNS.len()).find(|bound| {
                let is_bound = |(part, bounds): (&Stage, &[Option<Expr>; 3])| {
                    bounds[*bound].is_some()
                        && part.columns.get(position) == bounds[*bound].as_ref()
                };
                windows.is_some() && parts.iter().zip(&bounds).all(is_bound)
            });
            match bound {
                Some(bound) => {
                    held[bound].get_or_insert_with(|| name.clone());
                    window_column(WINDOW_COLUMNS[bound])
                }
                None => input_column(name),
            }
        };
        let columns: Vec<Expr> = names.iter().enumerate().map(column).collect();
        if parts.iter().any(|part| part.columns.len() != columns.len()) {
            return Err(SqlError::internal("a UNION ALL of different numbers of columns"));
        }
        let window = windows.map(|kind| Windows::inherited(kind, held));
        let inner = |stage| Inner { stage, names: names.clone() };
        let parts = parts.into_iter().map(inner).collect();
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
        let message = format!("{what} within a query of a UNION ALL does not run here");
        Err(SqlError::unsupported(message)
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

/// The windows that rows of all parts come from, if they are the same.
fn common_windows(parts: &[Stage]) -> Option<plan::Window> {
    let mut windows = parts.iter().map(Stage::fired_windows);
    let first = windows.next()??;
    let same = |other: Option<&Windows>| other.is_some_and(|other| first.are_those_of(other));
    windows.all(same).then_some(first.kind)
}
