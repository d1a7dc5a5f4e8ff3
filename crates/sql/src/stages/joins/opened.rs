//! The input of a subquery of `EXISTS` or `IN`, and its conditions that belong to the join.
//!
//! A nested subquery may name columns of queries farther out. The nested subquery is joined to the
//! rows of its outer subquery: such a row passes if the join has a pair with the row. So conditions
//! of the nested subquery on queries farther out become conditions of the outer subquery.

use datafusion_common::{JoinConstraint, NullEquality};
use datafusion_expr::expr::{Exists, InSubquery};
use datafusion_expr::utils::{conjunction, split_conjunction};
use datafusion_expr::{
    Aggregate, Distinct, FetchType, Filter, Join, JoinType, Limit, Projection, SkipType,
};

use crate::stages::lower::indexed;
use crate::syntax::prelude::*;

/// A subquery that keeps rows.
pub(super) struct Subquery<'a> {
    plan: &'a LogicalPlan,
    /// The operand of IN; `None`: EXISTS.
    pub(super) value: Option<&'a Expr>,
    pub(super) negated: bool,
}

impl Subquery<'_> {
    pub(super) fn of(expr: &Expr) -> Option<Subquery<'_>> {
        match expr {
            Expr::Not(inner) => {
                let inner = Subquery::of(inner)?;
                Some(Subquery { negated: !inner.negated, ..inner })
            }
            Expr::Exists(Exists { subquery, negated }) => {
                Some(Subquery { plan: &subquery.subquery, value: None, negated: *negated })
            }
            Expr::InSubquery(InSubquery { expr, subquery, negated }) => {
                Some(Subquery { plan: &subquery.subquery, value: Some(expr), negated: *negated })
            }
            _ => None,
        }
    }

    /// Whether the subquery is EXISTS of a grouping of all rows, which always has a single row.
    pub(super) fn has_one_row(&self) -> Result<bool> {
        let mut plan = self.plan;
        while self.value.is_none() {
            plan = match plan {
                LogicalPlan::Projection(projection) => &projection.input,
                LogicalPlan::Distinct(Distinct::All(input)) => input,
                LogicalPlan::Limit(limit) if keeps_a_row(limit)? => &limit.input,
                LogicalPlan::Aggregate(aggregate) => return Ok(aggregate.group_expr.is_empty()),
                _ => break,
            };
        }
        Ok(false)
    }

    pub(super) fn name(&self) -> &'static str {
        match (self.value, self.negated) {
            (None, false) => "EXISTS",
            (None, true) => "NOT EXISTS",
            (Some(_), false) => "IN",
            (Some(_), true) => "NOT IN",
        }
    }
}

/// A subquery without parts that do not affect the kept rows.
pub(super) struct Opened {
    pub(super) input: LogicalPlan,
    /// Conditions on rows of `input`.
    pub(super) own: Vec<Expr>,
    /// Conditions with columns of outer queries, as if all columns were in the same plan.
    pub(super) outer: Vec<Expr>,
    /// Value of the subquery, over `input`.
    pub(super) value: Option<Expr>,
    /// Inputs of nested subqueries that have been joined to the rows of this subquery.
    joined: Vec<LogicalPlan>,
}

impl Opened {
    pub(super) fn new(subquery: &Subquery<'_>) -> Result<Opened> {
        let mut plan = subquery.plan;
        let mut value = subquery.value.map(|_| Expr::from(plan.schema().qualified_field(0)));
        loop {
            plan = match plan {
                LogicalPlan::Projection(projection) => {
                    value = value.map(|value| through(value, projection)).transpose()?;
                    &projection.input
                }
                LogicalPlan::Distinct(Distinct::All(input)) => input,
                // There is a group if there is a row.
                LogicalPlan::Aggregate(aggregate) if value.is_none() && has_keys(aggregate) => {
                    &aggregate.input
                }
                // Some row, whichever.
                LogicalPlan::Limit(limit) if value.is_none() && keeps_a_row(limit)? => &limit.input,
                _ => break,
            };
        }
        let (input, conditions) = match plan {
            LogicalPlan::Filter(filter) => (&*filter.input, split_conjunction(&filter.predicate)),
            _ => (plan, vec![]),
        };
        let (own, outer, joined) = Default::default();
        let mut opened = Opened { input: input.clone(), own, outer, value, joined };
        let (subqueries, plain): (Vec<&Expr>, Vec<&Expr>) =
            conditions.into_iter().partition(|part| Subquery::of(part).is_some());
        for condition in plain {
            match condition.contains_outer() {
                true => opened.outer.push(of_one_plan(condition)?),
                false => opened.own.push(condition.clone()),
            }
        }
        for condition in subqueries {
            if !opened.took_in(condition)? {
                opened.own.push(condition.clone());
            }
        }
        Ok(opened)
    }

    /// Joins what a subquery within this one reads to its rows, if that names queries farther out.
    fn took_in(&mut self, condition: &Expr) -> Result<bool> {
        let Some(subquery) = Subquery::of(condition) else { return Ok(false) };
        if subquery.has_one_row()? {
            return Ok(false);
        }
        let inner = Opened::new(&subquery)?;
        let mut outer = inner.outer;
        if let (Some(value), Some(wanted)) = (inner.value, subquery.value) {
            outer.push(value.eq(of_one_plan(wanted)?));
        }
        let both = [&self.input, &inner.input].map(|input| input.schema().clone());
        let unknown = |condition: &Expr| {
            let mut columns = condition.column_refs().into_iter();
            columns.find(|column| !both.iter().any(|schema| schema.has_column(column))).cloned()
        };
        let Some(farther) = outer.iter().find_map(unknown) else { return Ok(false) };
        if subquery.negated {
            let name = subquery.name();
            let message = format!(
                "{name} names {farther}, which is of a query farther out than the one around it"
            );
            return Err(SqlError::unsupported(message).help(format!(
                "join the tables of the queries around it, and ask this of their rows:\nFROM … \
                 JOIN … ON … WHERE {name} (…)"
            )));
        }
        apart(&inner.input, both[0].as_ref())?;
        let (mut on, outer): (Vec<Expr>, Vec<Expr>) =
            outer.into_iter().partition(|condition| unknown(condition).is_none());
        on.extend(implied(&self.outer, &outer).filter(|condition| unknown(condition).is_none()));
        let (left, right) = (self.input.clone(), filtered(inner.input.clone(), inner.own)?);
        let join = Join::try_new(
            Arc::new(left),
            Arc::new(right),
            vec![],
            conjunction(on),
            JoinType::Inner,
            JoinConstraint::On,
            NullEquality::NullEqualsNothing,
            false,
        )?;
        self.input = LogicalPlan::Join(join);
        self.outer.extend(outer);
        self.joined.extend([inner.joined, vec![inner.input]].concat());
        Ok(true)
    }

    /// Refuses one that reads a table of the same name as the query around it, whose rows are of
    /// `schema`, where both would be meant.
    pub(super) fn check_names(&self, schema: &DFSchema) -> Result<()> {
        self.joined.iter().try_for_each(|input| apart(input, schema))
    }
}

/// Refuses a plan with a column of the same name as another one.
fn apart(plan: &LogicalPlan, other: &DFSchema) -> Result<()> {
    let same = plan.schema().columns().into_iter().find(|column| other.has_column(column));
    same.map_or(Ok(()), |column| {
        let message = format!(
            "a subquery that names queries farther out has a column of the same name as one of \
             these: {column}"
        );
        Err(SqlError::unsupported(message).help("give its table another name: FROM … AS i"))
    })
}

/// The rows of a plan for which these hold.
fn filtered(input: LogicalPlan, conditions: Vec<Expr>) -> Result<LogicalPlan> {
    Ok(match conjunction(conditions) {
        Some(condition) => LogicalPlan::Filter(Filter::try_new(condition, Arc::new(input))?),
        None => input,
    })
}

/// Equalities of pairs, implied by equalities of both sides with the same column: windows are often
/// compared only with the windows of the outermost query.
fn implied<'a>(left: &'a [Expr], right: &'a [Expr]) -> impl Iterator<Item = Expr> {
    let pairs = |conditions: &'a [Expr]| {
        conditions.iter().filter_map(|condition| match condition {
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) => {
                let are_columns = [left, right].map(|e| matches!(**e, Expr::Column(_)));
                are_columns.iter().all(|is| *is).then_some([&**left, &**right])
            }
            _ => None,
        })
    };
    let ways = |[a, b]: [&'a Expr; 2]| [[a, b], [b, a]];
    pairs(left).flat_map(ways).flat_map(move |[own, shared]| {
        let same = pairs(right).flat_map(ways).filter(move |[_, other]| *other == shared);
        same.map(|[inner, _]| own.clone().eq(inner.clone()))
    })
}

/// Whether a LIMIT keeps a row, if there is one.
fn keeps_a_row(limit: &Limit) -> Result<bool> {
    let (skip, fetch) = (limit.get_skip_type()?, limit.get_fetch_type()?);
    Ok(matches!((skip, fetch), (SkipType::Literal(0), FetchType::Literal(Some(1..)))))
}

/// Whether a grouping has keys, and so gives no row for empty input.
fn has_keys(aggregate: &Aggregate) -> bool {
    let sets = |key: &Expr| matches!(key, Expr::GroupingSet(_));
    !aggregate.group_expr.is_empty() && !aggregate.group_expr.iter().any(sets)
}

/// A column of a projection, or what is computed of it, over what the projection takes.
fn through(expr: Expr, projection: &Projection) -> Result<Expr> {
    let schema = indexed(&projection.schema);
    Ok(expr.replaced(|e| {
        let Expr::Column(column) = e else { return Ok(None) };
        let expr = projection.expr[schema.index_of(column)?].clone();
        Ok(Some(expr.unalias_nested().data))
    })?)
}

/// A condition whose columns of the outer query are plain columns.
fn of_one_plan(expr: &Expr) -> Result<Expr> {
    Ok(expr.clone().replaced(|e| {
        Ok(match e {
            Expr::OuterReferenceColumn(_, column) => Some(Expr::Column(column.clone())),
            _ => None,
        })
    })?)
}
