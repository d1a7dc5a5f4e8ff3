//! A DATE compared or combined with a TIMESTAMP is midnight in the timestamp's own unit. DataFusion
//! would convert both to nanoseconds, which reach no further than the year 2262. The same places
//! see to decimals beside doubles ([`super::doubles`]).

use datafusion_common::config::ConfigOptions;
use datafusion_expr::expr::{Between, InSubquery};
use datafusion_expr::expr_rewriter::NamePreserver;
use datafusion_expr::{LogicalPlanBuilder, cast};
use datafusion_optimizer::analyzer::AnalyzerRule;

use crate::expr::{by_parts::by_parts, coercion::schema_of};
use crate::syntax::prelude::*;

use super::doubles::{
    decimals_as_doubles, decimals_go_together, union_of_doubles, values_of_doubles,
};

/// Functions whose arguments, from some argument on, get a common type.
const OF_ONE_TYPE: [&str; 6] = ["coalesce", "greatest", "ifnull", "least", "nullif", "nvl2"];

/// Applies [`dates_as_times`] to a plan; goes before types are made to agree.
#[derive(Debug, Default)]
pub(crate) struct DatesAsTimes;

impl AnalyzerRule for DatesAsTimes {
    fn name(&self) -> &str {
        "dates_as_times"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> DfResult<LogicalPlan> {
        let mut changed = false;
        let analyzed = plan.transform_up_with_subqueries(|node| {
            let schema = Arc::new(schema_of(&node));
            let names = NamePreserver::new(&node);
            let rewritten = node.map_expressions(|expr| {
                let name = names.save(&expr);
                let expr = by_parts(expr, &schema, false, &mut |part, schema| {
                    let part = dates_as_times(part, schema)?;
                    changed |= part.transformed;
                    Ok(part.data)
                })?;
                Ok(Transformed::yes(name.restore(expr)))
            })?;
            // What stands above sees the types of what stands below.
            let node = if changed { rewritten.data.recompute_schema()? } else { rewritten.data };
            let (differs, node) = match node {
                LogicalPlan::Union(union) => union_of_doubles(union)?,
                LogicalPlan::Values(values) => values_of_doubles(values)?,
                node => (false, node),
            };
            changed |= differs;
            Ok(Transformed::yes(node))
        })?;
        Ok(analyzed.data)
    }
}

/// Casts each DATE that is compared, subtracted or chosen beside a TIMESTAMP to the timestamp's
/// type, and each DECIMAL beside a floating number to DOUBLE. Other arithmetic of decimals has
/// Flink's types.
pub(crate) fn dates_as_times(expr: Expr, schema: &DFSchema) -> DfResult<Transformed<Expr>> {
    expr.changed_up(|mut expr| {
        if let Expr::InSubquery(tested) = &mut expr
            && date_in(tested, schema)?
        {
            return Ok(Transformed::yes(expr));
        }
        // DataFusion would bring the instant to nanoseconds.
        if let Expr::ScalarFunction(call) = &mut expr
            && call.name() == "to_char"
            && let Some(time) = call.args.first_mut()
            && let DataType::Timestamp(unit, Some(_)) = time.get_type(schema)?
        {
            *time = cast(std::mem::take(time), DataType::Timestamp(unit, None));
            return Ok(Transformed::yes(expr));
        }
        let types: Vec<DataType> =
            beside(&mut expr).iter().filter_map(|e| e.get_type(schema).ok()).collect();
        let finest = types
            .iter()
            .filter_map(|t| match t {
                DataType::Timestamp(unit, _) => Some((*unit, t.clone())),
                _ => None,
            })
            .max_by_key(|(unit, _)| *unit);
        refuse_numbers(&expr, &types)?;
        let compared = is_comparison(&expr);
        if decimals_go_together(&mut expr, schema)?
            || decimals_as_doubles(beside(&mut expr), compared, schema)
        {
            return Ok(Transformed::yes(expr));
        }
        let Some((_, time)) = finest.filter(|_| types.contains(&DataType::Date32)) else {
            return Ok(Transformed::no(expr));
        };
        for one in beside(&mut expr) {
            if one.get_type(schema).is_ok_and(|t| t == DataType::Date32) {
                let date = std::mem::take(one);
                *one = Expr::Cast(Cast::new(Box::new(date), time.clone()));
            }
        }
        Ok(Transformed::yes(expr))
    })
}

/// Brings a date to the type of the times among which it is looked for, or the dates to that of the
/// time; whether there are both.
fn date_in(tested: &mut InSubquery, schema: &DFSchema) -> DfResult<bool> {
    let plan = &mut tested.subquery.subquery;
    let (table, field) = plan.schema().qualified_field(0);
    match (tested.expr.get_type(schema)?, field.data_type().clone()) {
        (DataType::Date32, time @ DataType::Timestamp(..)) => {
            *tested.expr = cast(std::mem::take(&mut *tested.expr), time);
        }
        (time @ DataType::Timestamp(..), DataType::Date32) => {
            let dates = cast(Expr::from((table, field)), time).alias(field.name());
            let times = LogicalPlanBuilder::from(LogicalPlan::clone(plan)).project([dates])?;
            *plan = Arc::new(times.build()?);
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// Refuses a date beside a number, which DataFusion would take for a number of days.
fn refuse_numbers(expr: &Expr, types: &[DataType]) -> DfResult<()> {
    let date = types.iter().find(|t| matches!(t, DataType::Date32));
    let number = types.iter().find(|t| t.is_numeric());
    let (Some(date), Some(number)) = (date, number) else { return Ok(()) };
    match expr {
        // What is subtracted from a date is checked where types are made to agree.
        Expr::BinaryExpr(BinaryExpr { op: Operator::Minus, .. }) => Ok(()),
        Expr::Case(_) | Expr::ScalarFunction(_) => {
            let name = match expr {
                Expr::ScalarFunction(call) => call.name().to_uppercase(),
                _ => "CASE".into(),
            };
            plan_err!(
                "there is no {name} of {}, {}; cast one of them, for example CAST(x AS STRING)",
                sql_type_name(date),
                sql_type_name(number)
            )
        }
        _ => plan_err!(
            "Cannot infer common argument type for comparison operation {date} = {number}"
        ),
    }
}

/// Whether the parts of an expression are compared.
fn is_comparison(expr: &Expr) -> bool {
    match expr {
        Expr::BinaryExpr(BinaryExpr { op, .. }) => op.supports_propagation(),
        Expr::Between(_) | Expr::InList(_) => true,
        _ => false,
    }
}

/// The parts of an expression that get one type.
fn beside(expr: &mut Expr) -> Vec<&mut Expr> {
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Minus, right }) => vec![left, right],
        Expr::Case(Case { when_then_expr, else_expr, .. }) => {
            let results = when_then_expr.iter_mut().map(|(_, then)| &mut **then);
            results.chain(else_expr.as_deref_mut()).collect()
        }
        Expr::ScalarFunction(call) => {
            // The tested argument of NVL2 may have any type.
            let tested = usize::from(call.name() == "nvl2");
            let arguments =
                if OF_ONE_TYPE.contains(&call.name()) { &mut call.args[..] } else { &mut [] };
            arguments.iter_mut().skip(tested).collect()
        }
        other => compared(other),
    }
}

/// The sides of a comparison, apart from a CASE.
pub(super) fn compared(expr: &mut Expr) -> Vec<&mut Expr> {
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if op.supports_propagation() => {
            vec![left, right]
        }
        Expr::Between(Between { expr, low, high, .. }) => vec![expr, low, high],
        Expr::InList(InList { expr, list, .. }) => {
            std::iter::once(&mut **expr).chain(list).collect()
        }
        _ => vec![],
    }
}

/// The sides of a comparison, or of the comparisons of a CASE.
pub(super) fn compared_in(expr: &mut Expr) -> Vec<&mut Expr> {
    match expr {
        Expr::Case(Case { expr: Some(expr), when_then_expr, .. }) => {
            let whens = when_then_expr.iter_mut().map(|(when, _)| &mut **when);
            std::iter::once(&mut **expr).chain(whens).collect()
        }
        other => compared(other),
    }
}
