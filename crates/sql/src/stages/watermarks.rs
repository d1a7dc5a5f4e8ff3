//! The watermark before each record of a table, as a column of its batches.

use crate::expr::located::without_marks;
use crate::expr::scalars::{watermark_of, watermark_type};
use crate::names::catalog::{INPUT, TableEntry, input_column};
use crate::stages::schemas::{qualified, table_schema};
use crate::syntax::prelude::*;

/// The column of watermarks.
pub(crate) const WATERMARK: &str = "$current_watermark";

/// The columns of a table, and, if it has a watermark, what that is before each record.
pub(crate) fn record_schema(table: &TableEntry) -> Result<DFSchema> {
    let Some(field) = watermark_field(table) else { return table_schema(table) };
    let mut own = table_schema(table)?;
    own.merge(&qualified(INPUT, Schema::new(vec![field]))?);
    Ok(own)
}

/// The column of watermarks.
pub(crate) fn watermark_field(table: &TableEntry) -> Option<Field> {
    let event_time = table.event_time.as_ref()?;
    let data_type = watermark_type(&table.columns[event_time.column].data_type)?;
    Some(Field::new(WATERMARK, data_type, true))
}

/// An expression over a table's records, with a column in the place of CURRENT_WATERMARK.
pub(crate) fn with_watermarks(expr: Expr, table: &TableEntry) -> Result<Expr> {
    let replaced = expr.changed_up(|e| {
        let Some(time) = watermark_of(&e).map(without_marks) else {
            return Ok(Transformed::no(e));
        };
        let clock = table.event_time.as_ref().is_some_and(|own| own.watermark.is_clock());
        let refused = match table.time_name() {
            Some(name) if clock && time == input_column(name) => not_of_clock(&format!("'{name}'")),
            Some(name) if time == input_column(name) => {
                return Ok(Transformed::yes(input_column(WATERMARK)));
            }
            Some(name) => SqlError::unsupported(format!(
                "CURRENT_WATERMARK takes the event time of table '{}'",
                table.name
            ))
            .help(format!("its watermark is for '{name}': write CURRENT_WATERMARK({name})")),
            None => SqlError::unsupported(format!("table '{}' has no watermark", table.name))
                .help("add WATERMARK FOR ts AS ts - INTERVAL '5' SECOND to CREATE TABLE"),
        };
        Err(refused.into())
    });
    Ok(replaced?.data)
}

/// As in Flink: what is read has no watermark as of the clock.
pub(crate) fn not_of_clock(argument: &str) -> SqlError {
    let message =
        format!("CURRENT_WATERMARK takes a rowtime attribute, and {argument} is processing time");
    SqlError::unsupported(message)
        .help("write CURRENT_WATERMARK(ts), where ts is the column that WATERMARK FOR names")
}
