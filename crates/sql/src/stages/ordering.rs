//! ORDER BY and LIMIT. A result that ends is sorted at its end. Rows of windows are sorted window
//! by window, as windows fire, if the order begins with the order of windows or there is no order.
//! Any other order of windows is refused unless the input ends.

use datafusion_expr::{FetchType, Limit, SkipType, Sort};
use millstream_contract::declaration::free_name;
use millstream_contract::plan::{self, SortKey};

use crate::expr::text::sql_text;
use crate::stages::lower::{OrderKey, Places, Rows, Stage, indexed};
use crate::syntax::prelude::*;

impl Stage {
    /// Lowers a LIMIT.
    pub(crate) fn of_limit(limit: &Limit, places: &Places) -> Result<Stage> {
        let mut stage = Stage::new(&limit.input, places)?.with_session_records()?;
        let unknown = || {
            SqlError::unsupported("LIMIT and OFFSET take whole numbers")
                .at(places.limit)
                .help("write for example LIMIT 10")
        };
        let FetchType::Literal(fetch) = limit.get_fetch_type()? else {
            return Err(unknown());
        };
        let SkipType::Literal(skip) = limit.get_skip_type()? else { return Err(unknown()) };
        if stage.order.is_none() || stage.limit.is_some() || stage.offset > 0 {
            stage.refuse_after_limit("a second LIMIT", places)?;
        }
        (stage.limit, stage.offset) = (fetch.map(|n| n as u64), skip as u64);
        Ok(stage)
    }

    /// Lowers an ORDER BY.
    pub(crate) fn of_sort(sort: &Sort, places: &Places) -> Result<Stage> {
        let schema = &indexed(sort.input.schema());
        let mut stage = Stage::new(&sort.input, places)?.with_session_records()?;
        stage.refuse_after_limit("an ORDER BY", places)?;
        let mut order = Vec::new();
        for key in &sort.expr {
            let data_type = key.expr.get_type(schema)?;
            if is_nested(&data_type) {
                let of = sql_type_name(&data_type);
                let message = format!("rows cannot be ordered by values of type {of}");
                return Err(SqlError::types(message)
                    .at(places.order_by)
                    .help("order by what it is made of: row.field, array[1], map['key']"));
            }
            let expr = stage.substitute(&key.expr, schema, places)?;
            order.push(OrderKey { expr, descending: !key.asc, nulls_first: key.nulls_first });
        }
        stage.order = Some(order);
        Ok(stage)
    }

    /// Checks that windows fire in the order of the first key, so that each window can be sorted by
    /// itself.
    fn check_window_order(&self, order: &[OrderKey], places: &Places) -> Result<()> {
        let refused = |message: &str, help: &str| {
            Err(SqlError::unsupported(message).at(places.order_by.or(places.statement)).help(help))
        };
        let Some(windows) = self.fired_windows() else {
            return refused(
                "ORDER BY over rows of windows from several groupings does not run here",
                "leave it out: rows come in the order of their windows; or write a UNION ALL below \
                 the GROUP BY",
            );
        };
        // Windows that begin together end at several times, or several windows fire together.
        let by_start = matches!(windows.kind, plan::Window::Tumble(_) | plan::Window::Hop(_));
        let [start, end, time] = self.fired_bounds();
        let in_order = [start.filter(|_| by_start), end, time];
        let first = order.first().filter(|key| in_order.iter().flatten().any(|e| *e == key.expr));
        let column = if by_start { "window_start or window_end" } else { "window_end" };
        match first {
            Some(key) if !key.descending => Ok(()),
            Some(_) => refused(
                "windows are complete in the order of time: the latest cannot come first",
                &format!("order by {column} without DESC; further columns may have it"),
            ),
            None => refused(
                &format!("ORDER BY over the rows of windows must begin with {column}"),
                &format!(
                    "the rows of each window are put in order when it is complete: ORDER BY \
                     {}, …; the first rows of each window are those of ROW_NUMBER",
                    if by_start { "window_start" } else { "window_end" }
                ),
            ),
        }
    }

    /// Whether its rows are of windows.
    fn has_windows(&self) -> bool {
        match (&self.fires, &self.input) {
            (Some(fires), _) => fires.is_windowed(),
            (None, Rows::Table(_) | Rows::Expanded(_) | Rows::Sides(_)) => false,
            (None, Rows::Stages(parts)) => parts.iter().any(|part| part.stage.has_windows()),
        }
    }

    /// Whether its rows come in the order of time: window by window, or by slices of time.
    fn comes_by_time(&self) -> bool {
        match (&self.fires, &self.input) {
            (Some(_), _) => self.operator_window().is_some(),
            (None, Rows::Table(_) | Rows::Expanded(_) | Rows::Sides(_)) => false,
            (None, Rows::Stages(parts)) => parts.iter().all(|part| part.stage.comes_by_time()),
        }
    }

    /// Takes the order and the LIMIT of a result, and why that is not the order in which windows
    /// are complete, so that all rows must be there before the first is written. Keys that are no
    /// columns become such, behind those that leave the job.
    pub(crate) fn take_sort(
        &mut self,
        names: &mut Vec<String>,
        places: &Places,
    ) -> (Option<plan::Sort>, Option<SqlError>) {
        let limits = self.limit.is_some() || self.offset > 0;
        let fires = self.fires.is_some() || self.has_windows();
        if self.order.is_none() && !(limits && fires) {
            return (None, None);
        }
        let (each_window, why) = match &self.order {
            None => (self.comes_by_time(), None),
            Some(_) if !self.has_windows() => (false, None),
            Some(order) => match self.check_window_order(order, places) {
                Ok(()) => (true, None),
                Err(why) => (false, Some(why)),
            },
        };
        let visible = self.columns.len();
        let mut keys: Vec<SortKey> = Vec::new();
        for OrderKey { expr, descending, nulls_first } in self.order.take().unwrap_or_default() {
            let known = self.columns.iter().position(|column| *column == expr);
            let column = known.unwrap_or_else(|| {
                names.push(free_name(&sql_text(&expr), &names.iter().cloned().collect()));
                self.columns.push(expr);
                self.columns.len() - 1
            });
            if keys.iter().all(|key| key.column != column) {
                keys.push(SortKey { column, descending, nulls_first });
            }
        }
        let (limit, offset) = (self.limit.take(), std::mem::take(&mut self.offset));
        (Some(plan::Sort { keys, visible, limit, offset, each_window }), why)
    }
}
