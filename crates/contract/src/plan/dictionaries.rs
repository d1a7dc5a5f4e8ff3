//! Which columns of texts may come as dictionaries.

use std::collections::BTreeSet;

use arrow::datatypes::DataType;

use super::{Aggregate, Expr, Node, Operator, Plan};

impl Plan {
    /// The columns of a source that may come as dictionaries of texts, as places in
    /// [`Source::projection`](super::Source::projection): plain STRING keys of an aggregation that
    /// alone takes the source's rows, and the STRING column of its filter, if the filter uses a
    /// single column. No other part of the plan looks at these columns.
    pub fn dictionaries(&self, source: usize) -> Vec<usize> {
        self.in_dictionaries(source).unwrap_or_default()
    }

    /// `None` also if some expression does not say at which columns it looks.
    fn in_dictionaries(&self, number: usize) -> Option<Vec<usize>> {
        let source = self.sources.get(number)?;
        let takers = self.stages.iter().flat_map(|stage| {
            let takes = stage.inputs.iter().filter(|input| input.from == Node::Source(number));
            takes.map(|input| (&stage.operator, input))
        });
        let [(Operator::Aggregate(aggregate), input)] = takers.collect::<Vec<_>>()[..] else {
            return None;
        };
        if input.project.is_some() || input.late.is_some() {
            return None;
        }
        let mut others = looked_at(aggregate)?;
        others.extend(source.always()?);
        if let Some(columns) = input.filter.as_ref().map(Expr::columns)
            && !matches!(columns.as_deref()?, [_])
        {
            others.extend(columns?);
        }
        let fields = source.schema.fields();
        let is_text = |place: &usize| {
            fields.get(*place).is_some_and(|field| *field.data_type() == DataType::Utf8)
        };
        let places = 0..source.projection.len();
        Some(places.filter(|place| is_text(place) && !others.contains(place)).collect())
    }
}

/// Columns in the computations of an aggregation: all columns except plain keys.
fn looked_at(aggregate: &Aggregate) -> Option<BTreeSet<usize>> {
    let mut columns = BTreeSet::new();
    for key in aggregate.keys.iter().filter(|key| !key.expr.is_column()) {
        columns.extend(key.expr.columns()?);
    }
    for call in &aggregate.aggregates {
        let arguments = call.arguments.iter().map(|argument| &argument.expr);
        for expr in arguments.chain(&call.filter) {
            columns.extend(expr.columns()?);
        }
    }
    Some(columns)
}
