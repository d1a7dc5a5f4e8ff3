//! The records of sessions: what SESSION without a GROUP BY gives, and what a join takes of it.
//!
//! Which session a record is in is known when the session is over. So there is a grouping by the
//! session and by what tells sessions apart, with one aggregate that keeps all records of a group
//! ([`Ranking::All`]), and gives them back in no order. Conditions above SESSION hold for what
//! fires: records that they leave out make sessions longer all the same. So the two sides of a join
//! that look at the same sessions, each at other records, are views of one grouping.

use arrow::datatypes::Fields;
use datafusion_expr::utils::split_conjunction_owned;
use millstream_contract::plan::{AggregateFunction, Best, Directions, Ranking, Window};

use crate::expr::{
    collected::UNBOUNDED, scalars::row_of, text::sql_text, window_node::WINDOW_COLUMNS,
};
use crate::stages::lower::{
    Call, Fires, Places, Stage, fired_column, is_window_column, over, unique, window_column,
};
use crate::stages::windows::assigned::{Assigned, OfRow, Windows};
use crate::stages::windows::sessions::is_over;
use crate::syntax::prelude::*;

impl Stage {
    /// The records of sessions, each with the bounds of its session, if that is what the stage's
    /// rows are; otherwise the stage as it is.
    pub(crate) fn with_session_records(mut self) -> Result<Stage> {
        let assigned = match (&self.fires, &self.window) {
            (None, Some(Windows { kind: Window::Session(_), of_row })) => match of_row {
                OfRow::Assigned(assigned) => assigned.clone(),
                OfRow::Inherited(_) => return Ok(self),
            },
            _ => return Ok(self),
        };
        // All records of a session pass the conditions that are on what tells sessions apart alone.
        let above = self.filters.split_off(assigned.below);
        let above = above.into_iter().flat_map(split_conjunction_owned);
        let (whole, above): (Vec<_>, Vec<_>) = above.partition(|filter| {
            !filter.is_volatile() && !over(filter).window && is_over(filter, &assigned.partition)
        });
        self.filters.extend(whole);
        let columns = std::mem::take(&mut self.columns);
        let (order, limit, offset) = (self.order.take(), self.limit.take(), self.offset);

        let kept = SessionColumns::of(&assigned);
        let mut stage = self.group(kept.keys.clone(), vec![kept.call()], &Places::default())?;
        let fired = FiredColumns::new(&kept, &stage.columns);
        let Some(Fires::Grouped(grouped)) = &mut stage.fires else {
            return Err(SqlError::internal("records of sessions without a grouping"));
        };
        for filter in above {
            grouped.having.push(fired.of(filter, &assigned)?);
        }
        let columns = columns.into_iter().map(|column| fired.of(column, &assigned));
        Ok(Stage { columns: columns.collect::<Result<_>>()?, order, limit, offset, ..stage })
    }
}

/// Kept columns of the records of sessions.
struct SessionColumns {
    /// The keys of the grouping: the bounds of the session, and what tells sessions apart.
    keys: Vec<Expr>,
    /// The kept columns of each record, with their names when fired.
    records: Vec<(Expr, Field)>,
}

impl SessionColumns {
    fn of(assigned: &Assigned) -> SessionColumns {
        let mut keys = [WINDOW_COLUMNS[0], WINDOW_COLUMNS[1]].map(window_column).to_vec();
        for key in &assigned.partition {
            if !keys.contains(key) {
                keys.push(key.clone());
            }
        }
        let mut taken = HashSet::from(WINDOW_COLUMNS.map(str::to_string));
        taken.extend(keys.iter().map(sql_text));
        let (mut records, mut known) = (Vec::new(), HashSet::new());
        for (column, field) in &assigned.records {
            let is_constant = column.column_refs().is_empty() && !column.is_volatile();
            let is_key = is_determined_by_key(field.data_type()) && keys.contains(column);
            if is_constant || is_key || !known.insert(column) {
                continue;
            }
            let name = unique(field.name().clone(), &mut taken);
            records.push((column.clone(), field.as_ref().clone().with_name(name)));
        }
        SessionColumns { keys, records }
    }

    /// The aggregate that keeps the records.
    fn call(&self) -> Call {
        let (mut columns, mut fields): (Vec<Expr>, Vec<Field>) =
            self.records.iter().cloned().unzip();
        if columns.is_empty() {
            columns.push(lit(true));
        }
        let mut taken: HashSet<String> = fields.iter().map(|field| field.name().clone()).collect();
        fields.push(Field::new(unique("$rank".into(), &mut taken), DataType::Int64, false));
        let best = Best {
            limit: UNBOUNDED,
            ranking: Ranking::All,
            keys: 0,
            directions: Directions::default(),
            keeps_last: false,
        };
        let row = DataType::Struct(Fields::from(fields));
        let call = Call::new(AggregateFunction::Best(best), row);
        let mut call = Call { arguments: vec![row_of(columns)], ..call };
        call.name = call.text();
        call
    }
}

/// Whether a key says what a value was: of floating-point numbers, keys have one zero and one NaN.
fn is_determined_by_key(data_type: &DataType) -> bool {
    !data_type.is_floating() && !is_nested(data_type)
}

/// Columns of SESSION, over the fired rows.
struct FiredColumns(HashMap<Expr, Expr>);

impl FiredColumns {
    /// `keys` are the columns that hold the keys.
    fn new(kept: &SessionColumns, keys: &[Expr]) -> FiredColumns {
        let records = kept.records.iter();
        let records = records.map(|(column, field)| (column.clone(), fired_column(field.name())));
        let keys = kept.keys.iter().cloned().zip(keys.iter().cloned());
        let keys = keys.filter(|(key, _)| !is_window_column(key));
        // The value as it came, where there are both.
        FiredColumns(keys.chain(records).collect())
    }

    /// An expression over what SESSION takes and gives, over what fires.
    fn of(&self, expr: Expr, assigned: &Assigned) -> Result<Expr> {
        let rewritten = expr.changed_down(|e| {
            let fired = match (self.0.get(&e), &e) {
                (Some(fired), _) => fired.clone(),
                (None, Expr::Column(column)) if is_window_column(&e) => {
                    fired_column(column.name.clone())
                }
                _ => return Ok(Transformed::no(e)),
            };
            Ok(Transformed::new(fired, true, TreeNodeRecursion::Jump))
        })?;
        match over(&rewritten.data).input {
            false => Ok(rewritten.data),
            true => {
                let text = sql_text(&rewritten.data);
                let message =
                    format!("{text} cannot be computed of the records that SESSION gives");
                let help = "compute it in the query that SESSION takes, and name the column";
                Err(SqlError::unsupported(message).at(assigned.place).help(help))
            }
        }
    }
}
