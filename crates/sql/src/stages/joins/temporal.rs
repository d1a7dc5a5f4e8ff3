//! Temporal joins: each row is joined with the version of a table that counted at the row's event
//! time.
//!
//! The table receives appended versions: it has a watermark, and a primary key that identifies the
//! versions of a row. Only the key and the time tell versions apart, so any other condition applies
//! to the version that counts, and never to earlier versions.

use millstream_contract::plan::Interval;

use super::conditions::SortedConditions;
use super::version::Versioned;
use super::{Meets, NamedJoin};
use crate::names::catalog::{TableEntry, WatermarkDecl, input_column};
use crate::stages::lower::{Places, Rows, Stage};
use crate::syntax::prelude::*;

impl Stage {
    /// Lowers a join with the versions of a table as of the left side's event time, which is this
    /// column of its plan.
    pub(super) fn as_of_event_time(join: Versioned, time: usize, places: &Places) -> Result<Stage> {
        let numbered = join.numbered(places)?;
        let Versioned { kind, named, schemas, sides, key, on, above } = join;
        let table = versioned(&sides[1].stage, key.is_some(), &named)?;
        let names = key.as_deref().unwrap_or(&table.primary_key);
        let key = key_columns(names, &sides[1].stage, &named)?;
        let event_time = table.event_time.as_ref().map(|of| &table.columns[of.column].data_type);
        check_zones(schemas[0].field(time).data_type(), event_time, &named)?;
        let on = numbered.conditions(&on, places)?;
        let above = numbered.conditions(&above, places)?;
        let cast = on.iter().find_map(|condition| numbered.key_cast(&condition.expr, &key));
        let parts = SortedConditions::of_versions((kind, &key), on, above, &sides, &numbered);
        let compared: Vec<usize> =
            parts.keys.iter().filter_map(|key| numbered.key_column(&key[1])).collect();
        if let Some(missing) = key.iter().position(|at| !compared.contains(at)) {
            let column = &names[missing];
            if let Some((_, own, other)) = cast.filter(|(at, ..)| *at == key[missing]) {
                let [own, other] = [own, other].map(|of| sql_type_name(&of));
                let message = format!(
                    "{}: ON compares '{column}' of the PRIMARY KEY of '{}' as {other}, in which two \
                     values of {own} may be one",
                    named.name, table.name
                );
                let help =
                    format!("bring the other side to the key's type: CAST(… AS {own}) = {column}");
                return Err(named.error(message, help));
            }
            let message = format!(
                "{} does not say which version it is of: ON compares '{column}' of the PRIMARY KEY of \
                 '{}' with nothing",
                named.name, table.name
            );
            return Err(
                named.error(message, format!("add t.… = {column} to ON, for each row of t"))
            );
        }
        let interval = Some((Interval::AS_OF, Some(time)));
        let meets = Meets { window: None, interval, unwindowed: None, as_of: true };
        Stage::meeting(kind, sides, parts, meets, &named)
    }
}

/// The table whose rows the right side has, if these are versions: `keyed`, if the query says of
/// what.
fn versioned<'s>(right: &'s Stage, keyed: bool, named: &NamedJoin) -> Result<&'s TableEntry> {
    let refused = |message: String, help: String| Err(named.error(message, help));
    let name = &named.name;
    let Rows::Table(table) = &right.input else {
        return refused(
            format!("{name}: what has versions is a table, or a view of its rows"),
            "write the result of the query to a file first; or join within windows, or an interval"
                .into(),
        );
    };
    if right.fires.is_some() || right.window.is_some() {
        return refused(
            format!("{name}: the results of windows are no versions"),
            "write them to a file first; or join within windows, or an interval".into(),
        );
    }
    let TableEntry { name: table_name, primary_key, event_time, .. } = &**table;
    if primary_key.is_empty() && !keyed {
        return refused(
            format!("{name}: table '{table_name}' has no PRIMARY KEY, so its rows are no versions"),
            format!(
                "add PRIMARY KEY (column) NOT ENFORCED to CREATE TABLE {table_name}, and compare the \
                 column in ON"
            ),
        );
    }
    let watermark = event_time.as_ref().map(|event_time| &event_time.watermark);
    match watermark {
        None | Some(WatermarkDecl::Clock) => refused(
            format!("{name}: table '{table_name}' has no watermark, so its versions have no time"),
            format!("add WATERMARK FOR … AS … to CREATE TABLE {table_name}"),
        ),
        Some(_) => Ok(table),
    }
}

/// The columns of the right side's plan that are those of its table.
fn key_columns(names: &[String], right: &Stage, named: &NamedJoin) -> Result<Vec<usize>> {
    let column = |name: &String| {
        let column = input_column(name);
        let found = right.columns.iter().position(|own: &Expr| *own == column);
        found.ok_or_else(|| missing(name, named))
    };
    names.iter().map(column).collect()
}

fn missing(name: &str, named: &NamedJoin) -> SqlError {
    let message = format!("{}: the right side leaves out '{name}', of its PRIMARY KEY", named.name);
    named.error(message, "select it as it is, and compare it in ON")
}

/// Checks that times can be compared: both are instants, or both are local times.
fn check_zones(left: &DataType, right: Option<&DataType>, named: &NamedJoin) -> Result<()> {
    let is_instant = |of: &DataType| matches!(of, DataType::Timestamp(_, Some(_)));
    if right.is_none_or(|right| is_instant(left) == is_instant(right)) {
        return Ok(());
    }
    let message = format!(
        "{} compares an instant, TIMESTAMP_LTZ, with a local time, TIMESTAMP: the event times of both \
         sides are of one kind",
        named.name
    );
    Err(named.error(message, "declare both alike in CREATE TABLE"))
}
