//! Checking a window function's DESCRIPTOR: it must name the unchanged event time of the rows. For
//! a table this is its own event time, for a window's result `window_time`, and for a UNION ALL the
//! event time of each of its queries.

use millstream_contract::{declaration::identifier, plan::JoinKind};

use crate::expr::text::sql_text;
use crate::names::catalog::{TableEntry, input_column};
use crate::names::no_time::{computed_time, computed_time_of, declaration};
use crate::stages::lower::{Fires, Rows, Stage, window_column};
use crate::stages::nest::{By, Expanded, Inner};
use crate::syntax::prelude::*;

impl Stage {
    /// Checks that a window's time, the plan's `field`, is the event time of this stage's rows.
    pub(crate) fn check_time(&self, time: &Expr, field: &Field) -> Result<()> {
        match &self.input {
            Rows::Table(table) => of_table(table, time, field.name(), field.data_type()),
            Rows::Expanded(rows) => of_elements(rows, time, field.name(), field.data_type()),
            Rows::Stages(_) if *time == window_column("window_time") => Ok(()),
            Rows::Sides(_) => Err(SqlError::internal("a window over the sides of a join")),
            Rows::Stages(parts) => match &parts[..] {
                [part] => {
                    let column = part.names.iter().position(|n| *time == input_column(n));
                    let own = column.and_then(|column| part.stage.columns.get(column));
                    match own.is_some_and(|own| part.stage.is_time_of_interval(own)) {
                        true => Ok(()),
                        false => part.stage.of_groups(field.name()),
                    }
                }
                parts => (1..)
                    .zip(parts)
                    .try_for_each(|(number, part)| {
                        let Some(column) = part.names.iter().position(|n| *time == input_column(n))
                        else {
                            return Err(computed(field.name()));
                        };
                        part.stage.of_part(column, number, field.name(), field.data_type())
                    })
                    .map_err(|error| if are_of_full_join(parts) { of_full_join() } else { error }),
            },
        }
    }

    /// Checks that a column of a part of a UNION ALL is the event time of the part's rows.
    fn of_part(
        &self,
        column: usize,
        number: usize,
        name: &str,
        data_type: &DataType,
    ) -> Result<()> {
        let time = &self.columns[column];
        let checked = match (&self.fires, &self.input) {
            (Some(_), _) => {
                let [_, _, own] = self.fired_bounds();
                let is_time = own.as_ref() == Some(as_it_is(time, TimeUnit::Millisecond));
                if is_time || self.is_time_of_interval(time) {
                    Ok(())
                } else {
                    self.of_groups(name)
                }
            }
            (None, Rows::Table(table)) => {
                let time = table.time_unit().map_or(time, |unit| as_it_is(time, unit));
                of_table(table, time, name, data_type)
            }
            (None, Rows::Expanded(rows)) => of_elements(rows, time, name, data_type),
            (None, Rows::Stages(_) | Rows::Sides(_)) => {
                Err(SqlError::internal("a UNION ALL within another"))
            }
        };
        checked.map_err(|error| {
            let message = format!("query {number} of the UNION ALL: {}", error.message);
            let help = match (&self.fires, &self.input) {
                (None, Rows::Table(table)) => table.time_name().map(|time| {
                    format!(
                        "select '{time}' there, in the place of '{name}': its watermark is for that"
                    )
                }),
                _ => None,
            };
            SqlError { message, help: help.or(error.help), ..error }
        })
    }

    /// Whether a column of an interval join's rows is their event time.
    pub(crate) fn is_time_of_interval(&self, column: &Expr) -> bool {
        match &self.fires {
            Some(Fires::Joined(joined)) => {
                // Windows have bounds in whole milliseconds.
                joined.time.as_ref() == Some(as_it_is(column, TimeUnit::Millisecond))
            }
            Some(Fires::Expanded(expanding)) => {
                expanding.time.as_ref() == Some(as_it_is(column, TimeUnit::Millisecond))
            }
            _ => false,
        }
    }

    /// Why a column of a grouping's result is not its event time.
    fn of_groups(&self, name: &str) -> Result<()> {
        if self.fires.as_ref().is_some_and(Fires::is_windowed) {
            let message = format!("'{name}' is not the event time of a window's result");
            return Err(SqlError::unsupported(message).help(
                "that is window_time: select it (and GROUP BY it, too) in the query before, and \
                 name it in DESCRIPTOR(…)",
            ));
        }
        if let Some(Fires::Joined(joined)) = &self.fires
            && let Some(own) = &joined.time_name
        {
            let side = joined.interval.map_or("left", |interval| interval.side());
            let what = if joined.as_of { "temporal" } else { "interval" };
            let message = format!("'{name}' is not the event time of what this {what} join gives");
            return Err(SqlError::unsupported(message).help(format!(
                "that is '{own}', of the {side} side: select it as it is, and name it in DESCRIPTOR(…)"
            )));
        }
        if let Some(Fires::Joined(_)) = self.fires {
            let message = "what a join without a window gives has no event time";
            return Err(SqlError::unsupported(message)
                .help("join within windows: L.window_start = R.window_start AND …"));
        }
        if let Some(Fires::Expanded(_)) = self.fires {
            let message =
                format!("'{name}' is not the event time of the rows that are taken there");
            return Err(SqlError::unsupported(message)
                .help("select their event time as it is, and name it in DESCRIPTOR(…)"));
        }
        let message = "what a GROUP BY without a window gives has no event time";
        Err(SqlError::unsupported(message).help(
            "group by a window there, too: FROM TABLE(TUMBLE(…)) with GROUP BY window_start, \
             window_end, window_time, …",
        ))
    }
}

/// Whether rows are those of an interval FULL JOIN: of a LEFT JOIN, and the others of its right
/// side with NULLs in the place of the left side's.
fn are_of_full_join(parts: &[Inner]) -> bool {
    let kind = |part: &Inner| match &part.stage.fires {
        Some(Fires::Joined(joined)) if joined.interval.is_some() => Some(joined.kind),
        _ => None,
    };
    let is_null = |expr: &Expr| matches!(expr, Expr::Literal(value, _) if value.is_null());
    match parts {
        [pairs, alone] => {
            (kind(pairs), kind(alone)) == (Some(JoinKind::Left), Some(JoinKind::LeftAnti))
                && alone.stage.columns.iter().any(is_null)
        }
        _ => false,
    }
}

fn of_full_join() -> SqlError {
    SqlError::unsupported(
        "the rows of an interval FULL JOIN have no event time, as a row of either side may be missing",
    )
    .help("write a LEFT JOIN, whose rows have the left side's, or join within windows")
}

/// The operand below casts to timestamps that hold all values of `unit`: UNION ALL adds such casts
/// to give its queries a common type.
fn as_it_is(mut expr: &Expr, unit: TimeUnit) -> &Expr {
    while let Expr::Cast(cast) = expr
        && matches!(cast.field.data_type(), DataType::Timestamp(to, _) if *to >= unit)
    {
        expr = &cast.expr;
    }
    expr
}

fn computed(name: &str) -> SqlError {
    SqlError::unsupported(format!("'{name}' is computed of what the UNION ALL gives"))
        .help("name the column that each of its queries selects as its event time")
}

/// Checks that a column of the result of an UNNEST or a lookup is the event time of the input
/// records.
fn of_elements(rows: &Expanded, time: &Expr, name: &str, data_type: &DataType) -> Result<()> {
    let own = time_unit(rows).map_or(time, |unit| as_it_is(time, unit));
    let column = rows.kept.iter().position(|kept| *own == input_column(kept));
    let Some(time) = column.and_then(|column| rows.inner.columns.get(column)) else {
        let (taker, what) = match &rows.by {
            By::Elements(_) => ("UNNEST", "each element"),
            By::Lookup(_) => ("the lookup join", "each row"),
        };
        let message = format!("'{name}' is not the event time of the records that {taker} takes");
        let help = format!("{what} has the time of its record: name that column in DESCRIPTOR(…)");
        return Err(SqlError::unsupported(message).help(help));
    };
    match &rows.inner.input {
        Rows::Table(table) => {
            let time = table.time_unit().map_or(time, |unit| as_it_is(time, unit));
            of_table(table, time, name, data_type)
        }
        Rows::Expanded(below) => of_elements(below, time, name, data_type),
        Rows::Stages(_) | Rows::Sides(_) => {
            Err(SqlError::internal("an UNNEST or a lookup of a UNION ALL as a whole"))
        }
    }
}

/// The unit of the event time of the records that an UNNEST or a lookup takes.
fn time_unit(rows: &Expanded) -> Option<TimeUnit> {
    match &rows.inner.input {
        Rows::Table(table) => table.time_unit(),
        Rows::Expanded(below) => time_unit(below),
        Rows::Stages(_) | Rows::Sides(_) => None,
    }
}

fn of_table(table: &TableEntry, time: &Expr, name: &str, data_type: &DataType) -> Result<()> {
    if table.time_name().is_some_and(|event_time| *time == input_column(event_time)) {
        return Ok(());
    }
    if let Some(event_time) = table.time_name() {
        let message = format!("'{name}' is not the event time of table '{}'", table.name);
        return Err(SqlError::unsupported(message).help(format!(
            "its watermark is for '{event_time}': write DESCRIPTOR({event_time}) in FROM, \
             {event_time} in GROUP BY"
        )));
    }
    if !matches!(data_type, DataType::Timestamp(..)) {
        let message = format!("'{name}' is no time: it is {}", sql_type_name(data_type));
        return Err(SqlError::types(message).help(format!(
            "add a time to {}, for example:\n{}",
            declaration(table),
            computed_time(table, name, data_type).unwrap_or_else(|| computed_time_of(
                table,
                &format!("to_timestamp_seconds({name})")
            ))
        )));
    }
    let message =
        format!("table '{}' has no watermark, so its windows would never be complete", table.name);
    Err(SqlError::unsupported(message).help(match time {
        // The column may have another name in a view.
        Expr::Column(column) => {
            let name = identifier(&column.name);
            let line = format!("WATERMARK FOR {name} AS {name} - INTERVAL '5' SECOND");
            format!("add a line to {}:\n{line}", declaration(table))
        }
        computed => {
            let value = computed_time_of(table, &sql_text(computed));
            let own = table.free_name();
            format!("add lines to {}, and take '{own}' in its place:\n{value}", declaration(table))
        }
    }))
}
