//! A join's stage.

use millstream_contract::plan::{Input, Join, JoinKind, Key, Operator, Plan, Stage, Window};

use super::{Assembler, FiredResult, KEYS_MAX};
use crate::expr::text::sql_text;
use crate::expr::window_node::{WINDOW_COLUMNS, WINDOW_TYPE};
use crate::names::catalog::input_column;
use crate::stages::graph::{self, Body, Graph, Part, Side};
use crate::stages::schemas::{nullable, qualified};
use crate::stages::{joined::Joined, lower::FIRED};
use crate::syntax::prelude::*;

/// A table, the pass over its records, and the conditions on the records.
type Records = (usize, Option<usize>, Vec<Expr>);

impl Assembler<'_> {
    pub(super) fn join(
        &self,
        graph: &Graph,
        operator: &graph::Operator,
        joined: &Joined,
        plan: &Plan,
    ) -> Result<Stage> {
        let [left, right] = &operator.sides[..] else {
            return Err(SqlError::internal("a join without two sides"));
        };
        let (mut inputs, left_schema) = self.side(graph, left, plan)?;
        let left_inputs = inputs.len();
        let (others, right_schema) = self.side(graph, right, plan)?;
        inputs.extend(others);
        if operator.window.is_some() {
            count_once(graph, operator, &mut inputs);
        }
        let schemas = [Arc::new(left_schema), Arc::new(right_schema)];
        let (pair, fired) = rows_of(operator, joined.kind, &schemas)?;
        let (pair, fired) = (Arc::new(pair), Arc::new(fired));
        let condition = joined.condition.iter().map(|e| self.compiler.simple_filter(e, &pair));
        let condition = condition.collect::<Result<Vec<_>>>()?;
        let broadcast = broadcast(graph, [left, right], operator.window, joined);
        let FiredResult { having, project, output } = self.given(operator, &fired)?;
        let body = Join {
            kind: joined.kind,
            window: operator.window,
            left_inputs,
            left_columns: schemas[0].fields().len(),
            keys: self.keys_of_join(&joined.keys, &schemas)?,
            as_of: joined.as_of,
            nulls_are_equal: joined.nulls_are_equal,
            broadcast,
            condition: self.compiler.compile_filter(&condition, &pair)?,
            time: match &joined.time {
                Some(time) => Some(column_number(time, &fired)?),
                None => None,
            },
            pair: Arc::new(pair.as_arrow().clone()),
            fired: Arc::new(fired.as_arrow().clone()),
            having,
            project,
        };
        let operator = Operator::Join(Box::new(body));
        Ok(Stage { names: vec![], inputs, operator, output })
    }

    /// The inputs of a side, and the columns that they show.
    fn side(&self, graph: &Graph, side: &Side, plan: &Plan) -> Result<(Vec<Input>, DFSchema)> {
        let used = |name: &&String| side.used.contains(*name);
        let names: Vec<String> = side.names.iter().filter(used).cloned().collect();
        let mut takings = Vec::new();
        for part in &side.parts {
            let mut taking = self.taking(graph, part, plan, &side.used, &side.filters)?;
            let shown = taking.schema.fields().iter().map(|field| field.name());
            if taking.columns.is_none() && (side.parts.len() > 1 || !shown.eq(&names)) {
                taking.columns = Some(names.iter().map(|name| input_column(name)).collect());
            }
            takings.push(taking);
        }
        self.inputs(takings, &names)
    }

    /// The keys of a join, over the columns of each side.
    pub(super) fn keys_of_join(
        &self,
        keys: &[[Expr; 2]],
        schemas: &[Arc<DFSchema>; 2],
    ) -> Result<Vec<[Key; 2]>> {
        if keys.len() > KEYS_MAX {
            let message =
                format!("a join compares {} values; at most {KEYS_MAX} are possible", keys.len());
            return Err(SqlError::unsupported(message)
                .help("join some of them into one, for example CONCAT_WS('|', a, b)"));
        }
        let key = |expr: &Expr, schema: &Arc<DFSchema>| -> Result<Key> {
            let expr = self.compiler.simple(expr, schema)?;
            let data_type = expr.get_type(schema.as_ref())?;
            let nullable = nullable(&expr, schema.as_ref());
            let name = sql_text(&expr);
            Ok(Key { name, expr: self.compiler.compile(&expr, schema)?, data_type, nullable })
        };
        let both = |[left, right]: &[Expr; 2]| {
            let keys = [key(left, &schemas[0])?, key(right, &schemas[1])?];
            match keys[0].data_type == keys[1].data_type {
                true => Ok(keys),
                false => {
                    let [left, right] = keys.map(|key| format!("{} {}", key.name, key.data_type));
                    Err(SqlError::internal(format!("a join of {left} and {right}")))
                }
            }
        };
        keys.iter().map(both).collect()
    }
}

/// The side of a join that has one row in each window at the most, if its row can go to all
/// leaders; of two such the right one. Rows of the other side then need not move.
fn broadcast(
    graph: &Graph,
    sides: [&Side; 2],
    window: Option<Window>,
    joined: &Joined,
) -> Option<usize> {
    let window = window.filter(|_| !joined.as_of)?;
    let is_small = |side: &Side| match side.parts[..] {
        [Part::View { operator, .. }] => {
            graph.operators.get(operator).is_some_and(|operator| has_few_rows(operator, window))
        }
        _ => false,
    };
    let mut small = [1, 0].into_iter().filter(|side| joined.kind.may_broadcast(*side));
    small.find(|side| is_small(sides[*side]))
}

/// Whether an operator gives one row for each of its windows, at the most, and a window of a join
/// with it has few of these rows.
fn has_few_rows(operator: &graph::Operator, window: Window) -> bool {
    let Body::Grouped(grouped) = &operator.body else { return false };
    let are_few = match window {
        Window::Tumble(_) | Window::Hop(_) | Window::Cumulate(_) => true,
        // The interval is two slices long: four of the rows meet a slice at the most.
        Window::Interval(interval) => match operator.window {
            Some(Window::Tumble(tumble)) => tumble.size_us >= interval.slice_us(),
            Some(Window::Hop(hop)) => hop.slide_us >= interval.slice_us(),
            Some(Window::Cumulate(cumulate)) => cumulate.step_us >= interval.slice_us(),
            Some(Window::Session(_) | Window::Interval(_)) | None => false,
        },
        Window::Session(_) => false,
    };
    are_few && grouped.one_group && grouped.pairs.is_none() && grouped.ranking_name().is_none()
}

/// The number of a column of what fires.
fn column_number(column: &Expr, fired: &DFSchema) -> Result<usize> {
    match column {
        Expr::Column(column) => Ok(fired.index_of_column(column)?),
        other => Err(SqlError::internal(format!("a time that is {other}"))),
    }
}

/// The columns of pairs, and of what is given.
fn rows_of(
    operator: &graph::Operator,
    kind: JoinKind,
    schemas: &[Arc<DFSchema>; 2],
) -> Result<(DFSchema, DFSchema)> {
    let mut pair: Vec<Field> = Vec::new();
    if operator.window.is_some_and(|window| window.has_columns()) {
        pair.extend(WINDOW_COLUMNS.map(|name| Field::new(name, WINDOW_TYPE, false)));
    }
    let mut fired = pair.clone();
    let padded = [kind.keeps_right(), matches!(kind, JoinKind::Left | JoinKind::Full)];
    for (side, (schema, padded)) in schemas.iter().zip(padded).enumerate() {
        for field in schema.fields() {
            let field = field.as_ref().clone();
            if side == 0 || kind.gives_pairs() {
                let nullable = field.is_nullable() || padded;
                fired.push(field.clone().with_nullable(nullable));
            }
            pair.push(field);
        }
    }
    Ok((qualified(FIRED, Schema::new(pair))?, qualified(FIRED, Schema::new(fired))?))
}

/// Where inputs take the same records of a table, those that are dropped are counted once: of this
/// join, and of interval joins before it, for which a record is late by its own time alone.
fn count_once(graph: &Graph, operator: &graph::Operator, inputs: &mut [Input]) {
    let by_time = |of: &graph::Operator| matches!(of.window, Some(Window::Interval(_)));
    let before = graph.operators.iter().take_while(|before| !std::ptr::eq(*before, operator));
    let before = before.filter(|of| by_time(of) && by_time(operator) && of.query == operator.query);
    let mut known: HashSet<_> = before.flat_map(counted).flatten().collect();
    for (number, (input, records)) in inputs.iter_mut().zip(counted(operator)).enumerate() {
        let is_known = records.is_some_and(|records| !known.insert(records));
        input.again = is_known || !operator.counted.counts(number);
    }
}

/// The records that a join counts, input by input; `None`: results, or they are counted elsewhere.
fn counted(operator: &graph::Operator) -> impl Iterator<Item = Option<Records>> {
    operator.parts().enumerate().map(|(number, part)| match part {
        Part::Scan { scan, pass, filters, .. } if operator.counted.counts(number) => {
            let filters = filters.iter().map(crate::expr::located::without_marks).collect();
            Some((*scan, *pass, filters))
        }
        _ => None,
    })
}
