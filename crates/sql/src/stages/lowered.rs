//! Parts of a stage ([`Stage`](crate::stages::lower::Stage)).

use millstream_contract::plan::AggregateFunction;

use crate::names::{catalog::TableEntry, views::Pairs};
use crate::stages::joined::Joined;
use crate::stages::nest::{By, Expanded, Expanding, Inner};
use crate::syntax::prelude::*;

/// Sort key of rows: an expression over the same columns as the stage's columns.
#[derive(Debug, Clone)]
pub(crate) struct OrderKey {
    pub(crate) expr: Expr,
    pub(crate) descending: bool,
    pub(crate) nulls_first: bool,
}

/// Where a stage's rows come from.
#[derive(Debug, Clone)]
pub(crate) enum Rows {
    Table(Arc<TableEntry>),
    /// The result of a grouping or a join, or a UNION ALL of several stages that have the same
    /// columns: each one of these, or over a table.
    Stages(Vec<Inner>),
    /// Inputs of the two sides of a join.
    Sides(Box<[Vec<Inner>; 2]>),
    /// Rows that an UNNEST or a lookup makes of the records of a table.
    Expanded(Arc<Expanded>),
}

impl Rows {
    /// Whether some of them are results of a GROUP BY or a join.
    pub(crate) fn are_results(&self) -> bool {
        match self {
            Rows::Stages(parts) => parts.iter().any(|part| part.stage.fires.is_some()),
            Rows::Table(_) | Rows::Expanded(_) | Rows::Sides(_) => false,
        }
    }
}

/// Operator of a stage: its result appears when windows fire, or when the input has ended.
#[derive(Debug, Clone)]
pub(crate) enum Fires {
    Grouped(Grouped),
    Joined(Box<Joined>),
    /// Results that an UNNEST or a lookup expands.
    Expanded(Box<Expanding>),
}

impl Fires {
    /// Whether rows of windows fire.
    pub(crate) fn is_windowed(&self) -> bool {
        match self {
            Fires::Grouped(grouped) => grouped.windowed,
            Fires::Joined(joined) => joined.is_windowed(),
            Fires::Expanded(expanding) => expanding.windowed,
        }
    }

    /// Kind of the operator, for the stage's name.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Fires::Grouped(grouped) if grouped.windowed => "window",
            Fires::Grouped(_) => "group",
            Fires::Joined(_) => "join",
            Fires::Expanded(expanding) => match expanding.by {
                By::Elements(_) => "unnest",
                By::Lookup(_) => "lookup",
            },
        }
    }

    /// Conditions on what fires.
    pub(crate) fn having(&self) -> &Vec<Expr> {
        match self {
            Fires::Grouped(grouped) => &grouped.having,
            Fires::Joined(joined) => &joined.having,
            Fires::Expanded(expanding) => &expanding.having,
        }
    }

    /// The same.
    pub(crate) fn having_mut(&mut self) -> &mut Vec<Expr> {
        match self {
            Fires::Grouped(grouped) => &mut grouped.having,
            Fires::Joined(joined) => &mut joined.having,
            Fires::Expanded(expanding) => &mut expanding.having,
        }
    }
}

/// A grouping. Its expressions are over the input alone.
#[derive(Debug, Clone)]
pub(crate) struct Grouped {
    pub(crate) windowed: bool,
    /// Whether each window has one group: there are no keys, or none but the bounds of the window
    /// that a row comes from.
    pub(crate) one_group: bool,
    pub(crate) keys: Vec<Expr>,
    /// The columns of a fired window that hold the keys: their texts, made unique.
    pub(crate) key_names: Vec<String>,
    pub(crate) aggregates: Vec<Call>,
    /// Over [`FIRED`](crate::stages::lower::FIRED).
    pub(crate) having: Vec<Expr>,
    /// If what fires is pairs of the rows of groups; then these are what
    /// [`FIRED`](crate::stages::lower::FIRED) is.
    pub(crate) pairs: Option<Box<Pairs>>,
}

/// An aggregate call.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    /// The column of a fired window that holds the result: the call's text, made unique.
    pub(crate) name: String,
    pub(crate) function: AggregateFunction,
    /// None of `COUNT(*)` only. Each is NULL where any is.
    pub(crate) arguments: Vec<Expr>,
    /// If each value counts once: the types of the arguments. No grouping has such a call
    /// ([`crate::stages::repeats`]).
    pub(crate) distinct: Option<Vec<DataType>>,
    pub(crate) filter: Option<Expr>,
    pub(crate) result_type: DataType,
    pub(crate) is_mean_of_integers: bool,
    /// Where the call stands.
    pub(crate) place: Option<Place>,
}

impl Call {
    /// A call without a name and arguments.
    pub(crate) fn new(function: AggregateFunction, result_type: DataType) -> Call {
        Call {
            name: String::new(),
            function,
            arguments: vec![],
            distinct: None,
            filter: None,
            result_type,
            is_mean_of_integers: false,
            place: None,
        }
    }
}
