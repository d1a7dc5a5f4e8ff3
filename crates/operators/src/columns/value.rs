//! Values of a row of state, each with what feeds it.

use arrow::datatypes::DataType;
use millstream_state::ValueKind;

use crate::columns::elements::Made;
use crate::expr::Expr;
use crate::plan::Argument;

/// A mergeable value with its argument.
#[derive(Debug, Clone)]
pub(crate) struct Value {
    pub(crate) kind: ValueKind,
    pub(crate) argument: Option<Expr>,
    pub(crate) argument_type: DataType,
    /// Conversion of the argument.
    pub(crate) made: Made,
    pub(crate) filter: Option<Expr>,
    /// Whether a row may exist without this value having met input.
    pub(super) optional: bool,
    /// Whether a record may not take part: its argument is NULL or it does not pass the filter.
    pub(crate) masked: bool,
}

/// Identity of a value: values of the same kind, argument and filter are the same.
pub(super) type Likeness = (ValueKind, (Like, Made), Like);

/// Equal for expressions that yield the same.
#[derive(PartialEq, Eq, Hash)]
pub(crate) enum Like {
    Nothing,
    Column(usize),
    Computed(DataType, String),
}

impl Like {
    fn of(expr: &Option<Expr>) -> Like {
        match expr {
            None => Like::Nothing,
            Some(Expr::Column(column)) => Like::Column(*column),
            Some(Expr::Computed(e)) => Like::Computed(e.data_type().clone(), e.to_string()),
        }
    }
}

impl Value {
    pub(super) fn new(
        kind: ValueKind,
        argument: Option<&Argument>,
        made: Made,
        filter: &Option<Expr>,
        empty_group: bool,
    ) -> Value {
        let nullable = argument.is_some_and(|argument| argument.nullable);
        // COUNT(x) of what cannot be NULL is COUNT(*).
        let argument = argument.filter(|_| kind != ValueKind::Count || nullable);
        let nullable = nullable && !made.takes_nulls();
        let masked = nullable || made.may_skip() || filter.is_some();
        Value {
            kind,
            argument: argument.map(|argument| argument.expr.clone()),
            argument_type: argument.map_or(DataType::Null, |argument| argument.data_type.clone()),
            made,
            filter: filter.clone(),
            optional: masked || empty_group,
            masked,
        }
    }

    pub(super) fn likeness(&self) -> Likeness {
        (self.kind, self.argument_likeness(), Like::of(&self.filter))
    }

    /// Equal for values that take the same argument.
    pub(crate) fn argument_likeness(&self) -> (Like, Made) {
        (Like::of(&self.argument), self.made)
    }
}
