//! `JOIN t FOR SYSTEM_TIME AS OF x`: rows are joined with one version of `t`.
//!
//! The time `x` selects the version. If `x` is a processing time, the version is the current row of
//! `t` when the left row arrives ([`lookup`](super::lookup)). If `x` is the row's event time, the
//! version is the last one that is no later ([`temporal`](super::temporal)).

use datafusion_expr::Join;
use millstream_contract::plan::JoinKind;

use super::ranked::LastRowView;
use super::{JoinSide, NamedJoin, Numbered, kind_of};
use crate::expr::{indexed::Indexed, scalars::is_read_time};
use crate::names::catalog::INPUT;
use crate::stages::lower::{Places, Rows, Stage, indexed};
use crate::syntax::prelude::*;

/// A join with a version of a table, before it is known what time says which.
pub(super) struct Versioned {
    pub(super) kind: JoinKind,
    pub(super) named: NamedJoin,
    pub(super) schemas: [Indexed; 2],
    pub(super) sides: [JoinSide; 2],
    /// The columns of the right side's table that tell versions apart, if the query says.
    pub(super) key: Option<Vec<String>>,
    /// Conditions of the join, and conditions above the join.
    pub(super) on: Vec<Expr>,
    pub(super) above: Vec<Expr>,
}

/// Kinds of time that select a version of a table.
enum VersionTime {
    Processing,
    /// The column of the left side's plan.
    Event(usize),
}

impl Stage {
    /// Lowers a join with the version of its right side as of a time.
    pub(super) fn of_version(
        join: &Join,
        time: &Expr,
        (mut on, mut above): (Vec<Expr>, Vec<Expr>),
        places: &Places,
    ) -> Result<Stage> {
        let (kind, name) = kind_of(join.join_type)?;
        let schemas = [indexed(join.left.schema()), indexed(join.right.schema())];
        let place = places.texts.place(time);
        let named = NamedJoin::of_join(name, &schemas, place, places);
        if !matches!(kind, JoinKind::Inner | JoinKind::Left) {
            let message = format!("{} does not run with FOR SYSTEM_TIME AS OF", named.name);
            return Err(named.error(message, "JOIN and LEFT JOIN do"));
        }
        let of_left = if kind == JoinKind::Inner { &mut on } else { &mut above };
        let left = Stage::below_join(&join.left, of_left, places)?;
        let left = JoinSide::new(left, &schemas[0], places)?;
        let which = left.time(time, &schemas[0], &named, places)?;
        let ranked = match which {
            VersionTime::Processing => None,
            VersionTime::Event(_) => LastRowView::of(&join.right, places)?,
        };
        let right = ranked.as_ref().map_or(&*join.right, |ranked| &ranked.plan);
        let right = JoinSide::new(Stage::new(right, places)?, &schemas[1], places)?;
        let (key, sides) = (ranked.map(|ranked| ranked.key), [left, right]);
        let versioned = Versioned { kind, named, schemas, sides, key, on, above };
        match which {
            VersionTime::Processing => Stage::looked_up(versioned, places),
            VersionTime::Event(at) => Stage::as_of_event_time(versioned, at, places),
        }
    }
}

impl JoinSide {
    /// Kind of the time that an expression over this side's columns is.
    fn time(
        &self,
        time: &Expr,
        schema: &Indexed,
        named: &NamedJoin,
        places: &Places,
    ) -> Result<VersionTime> {
        let help = "it is a processing time of the left side, proc AS PROCTIME() in its CREATE TABLE, \
                    for what a table holds now; or the left side's event time, for what it held then";
        if time.column_refs().iter().any(|column| schema.index_of(column).is_err()) {
            let message = "the time of FOR SYSTEM_TIME AS OF is one of the left side";
            return Err(named.error(message, help));
        }
        let own = self.stage.substitute(time, schema, places)?;
        if is_clock(&self.stage, &own) {
            return Ok(VersionTime::Processing);
        }
        let at = match time {
            Expr::Column(column) => Some(schema.index_of(column)?),
            _ => None,
        };
        let checked = at.map(|at| self.stage.check_time(&own, schema.field(at)).map(|()| at));
        match checked {
            Some(Ok(at)) => Ok(VersionTime::Event(at)),
            checked => {
                let message = "what stands behind FOR SYSTEM_TIME AS OF is no time of the left side's \
                               rows";
                let why = checked.and_then(Result::err).map(|SqlError { message, .. }| message);
                let help = why.map_or(help.to_string(), |why| format!("{help}; {why}"));
                Err(named.error(message, help))
            }
        }
    }
}

/// Whether an expression over the rows that a stage takes is the time at which they are read.
fn is_clock(stage: &Stage, expr: &Expr) -> bool {
    if is_read_time(expr) {
        return true;
    }
    let Expr::Column(column) = expr else { return false };
    if column.relation.as_ref().is_none_or(|of| of.table() != INPUT) {
        return false;
    }
    let at = |names: &[String]| names.iter().position(|name| *name == column.name);
    match &stage.input {
        Rows::Table(table) => {
            let own = table.columns.iter().find(|own| own.name == column.name);
            own.and_then(|own| own.computed.as_ref()).is_some_and(is_read_time)
        }
        Rows::Expanded(rows) => at(&rows.kept)
            .and_then(|at| rows.inner.columns.get(at))
            .is_some_and(|inner| is_clock(&rows.inner, inner)),
        Rows::Stages(parts) => parts.iter().all(|part| {
            let own = at(&part.names).and_then(|at| part.stage.columns.get(at));
            own.is_some_and(|own| is_clock(&part.stage, own))
        }),
        Rows::Sides(_) => false,
    }
}

impl Versioned {
    /// Its columns by numbers.
    pub(super) fn numbered(&self, places: &Places) -> Result<Numbered> {
        Numbered::new(&self.schemas, places)
    }
}
