//! A DECIMAL beside a DOUBLE or FLOAT becomes a DOUBLE, as in Flink. DataFusion would make both a
//! DECIMAL, which keeps neither very small nor very large numbers, nor NaN. Beside integers and
//! other decimals it stays a DECIMAL, with Flink's types ([`super::exact`]).

use crate::syntax::prelude::*;

use datafusion_expr::{Union, Values};
use datafusion_expr::{
    expr::InSubquery, expr_rewriter::coerce_plan_expr_for_schema,
    type_coercion::binary::type_union_resolution,
};
use datafusion_optimizer::analyzer::type_coercion::coerce_union_schema;

use super::exact::{digits_of, exact, exact_operation, is_native};

/// Functions of doubles in Flink. DataFusion has variants for decimals.
const OF_DOUBLES: [&str; 26] = [
    "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "cos", "cosh", "cot",
    "degrees", "exp", "isnan", "ln", "log", "log10", "log2", "nanvl", "power", "radians", "sin",
    "sinh", "sqrt", "tan", "tanh",
];

/// Makes the parts of an expression go together that are decimals; says whether anything changed.
pub(super) fn decimals_go_together(expr: &mut Expr, schema: &DFSchema) -> DfResult<bool> {
    if let Some(changed) = exact_arithmetic(expr, schema) {
        *expr = changed;
        return Ok(true);
    }
    match expr {
        Expr::ScalarFunction(call) if OF_DOUBLES.contains(&call.name()) => {
            Ok(as_doubles(call.args.iter_mut().collect(), schema))
        }
        Expr::Case(case) => {
            let compared = case.expr.as_deref_mut().map_or(vec![], |operand| {
                let whens = case.when_then_expr.iter_mut().map(|(when, _)| &mut **when);
                std::iter::once(operand).chain(whens).collect()
            });
            let changed = decimals_as_doubles(compared, true, schema);
            Ok(results_of_one_type(case, schema) || changed)
        }
        Expr::InSubquery(within) => in_subquery(within, schema),
        _ => Ok(false),
    }
}

/// Casts the results of a CASE to one type, if they are numbers of several; says whether they were.
/// Until types are made to agree, DataFusion takes the first result's for that of the whole, and
/// arithmetic with it would go by that.
fn results_of_one_type(case: &mut Case, schema: &DFSchema) -> bool {
    let thens = case.when_then_expr.iter_mut().map(|(_, then)| &mut **then);
    let results: Vec<&mut Expr> = thens.chain(case.else_expr.as_deref_mut()).collect();
    let types: Vec<DataType> = results.iter().filter_map(|e| e.get_type(schema).ok()).collect();
    let known: Vec<DataType> = types.iter().filter(|t| !t.is_null()).cloned().collect();
    let several = known.windows(2).any(|pair| pair[0] != pair[1]);
    if types.len() < results.len() || !several || !known.iter().all(DataType::is_numeric) {
        return false;
    }
    let Some(common) = common_type(&known) else { return false };
    for (result, of) in results.into_iter().zip(&types) {
        if !of.is_null() && *of != common {
            *result = cast(std::mem::take(result), common.clone());
        }
    }
    true
}

/// Casts the decimals among parts of an expression that get one type, if others of them are
/// floating; says whether there were any. Where they are compared, texts count as floating.
pub(super) fn decimals_as_doubles(
    parts: Vec<&mut Expr>,
    compared: bool,
    schema: &DFSchema,
) -> bool {
    let types: Vec<DataType> = parts.iter().filter_map(|e| e.get_type(schema).ok()).collect();
    let texts = compared && types.iter().any(DataType::is_string);
    let mixed = mixed(&mut types.iter()) || texts && types.iter().any(DataType::is_decimal);
    mixed && as_doubles(parts, schema)
}

/// Casts the decimals among parts; says whether there were any.
fn as_doubles(parts: Vec<&mut Expr>, schema: &DFSchema) -> bool {
    let mut changed = false;
    for part in parts {
        if part.get_type(schema).is_ok_and(|t| t.is_decimal()) {
            *part = cast(std::mem::take(part), DataType::Float64);
            changed = true;
        }
    }
    changed
}

fn cast(expr: Expr, data_type: DataType) -> Expr {
    Expr::Cast(Cast::new(Box::new(expr), data_type))
}

/// Arithmetic with decimals, as it is in Flink; `None` if `expr` is no such, or is right already.
fn exact_arithmetic(expr: &Expr, schema: &DFSchema) -> Option<Expr> {
    let (left, op, right) = match expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if op.is_numerical_operators() => {
            (&**left, *op, &**right)
        }
        call => exact_operation(call)?,
    };
    let types = (left.get_type(schema).ok()?, right.get_type(schema).ok()?);
    let is_call = !matches!(expr, Expr::BinaryExpr(_));
    if !types.0.is_decimal() && !types.1.is_decimal() && !is_call {
        return None;
    }
    let binary =
        |left, right| Expr::BinaryExpr(BinaryExpr::new(Box::new(left), op, Box::new(right)));
    if types.0.is_floating() || types.1.is_floating() {
        let double = |side: &Expr, of: &DataType| match of {
            DataType::Float64 => side.clone(),
            _ => cast(side.clone(), DataType::Float64),
        };
        return Some(binary(double(left, &types.0), double(right, &types.1)));
    }
    let (left, right) = match (&types.0, &types.1) {
        (DataType::Null, other) => (cast(left.clone(), other.clone()), right.clone()),
        (other, DataType::Null) => (left.clone(), cast(right.clone(), other.clone())),
        _ => (as_decimal(left, &types.0)?, as_decimal(right, &types.1)?),
    };
    let digits = |side: &Expr| side.get_type(schema).ok().and_then(|t| digits_of(&t));
    let changed = match is_native(op, digits(&left)?, digits(&right)?) {
        true => binary(left, right),
        false => exact(op, left, right),
    };
    (changed != *expr).then_some(changed)
}

/// An operand of decimal arithmetic as a DECIMAL, as Flink has it. A constant within the range of
/// INT counts as an INT.
fn as_decimal(side: &Expr, of: &DataType) -> Option<Expr> {
    if of.is_decimal() {
        return Some(side.clone());
    }
    let (precision, scale) = match side {
        Expr::Literal(ScalarValue::Int64(Some(value)), _) if i32::try_from(*value).is_ok() => {
            digits_of(&DataType::Int32)?
        }
        _ => digits_of(of)?,
    };
    Some(cast(side.clone(), DataType::Decimal128(precision, scale)))
}

/// `left * right` as a call, if DataFusion has no type for it.
pub(super) fn wide_product(left: &Expr, right: &Expr, schema: &DFSchema) -> Option<Expr> {
    let scale = |side: &Expr| match side.get_type(schema) {
        Ok(DataType::Decimal128(_, scale)) => Some(i16::from(scale)),
        _ => None,
    };
    let is_wide = scale(left)? + scale(right)? > 38;
    is_wide.then(|| exact(Operator::Multiply, left.clone(), right.clone()))
}

/// `left / right` as a call, if arrow's rule, which multiplies the left side by a power of ten
/// first, has none for it.
pub(super) fn wide_quotient(left: &Expr, right: &Expr, schema: &DFSchema) -> Option<Expr> {
    const DIGITS_MAX: i16 = 38;
    let types = [left, right].map(|side| side.get_type(schema).ok());
    if !types.iter().flatten().any(DataType::is_decimal) {
        return None;
    }
    let [s1, s2] = types.map(|t| t.and_then(|t| digits_of(&t)).map(|(_, scale)| i16::from(scale)));
    let (s1, s2) = (s1?, s2?);
    let power = DIGITS_MAX.min(s1 + 4) - s1 + s2;
    (power > DIGITS_MAX).then(|| exact(Operator::Divide, left.clone(), right.clone()))
}

/// Casts the DECIMAL side of IN to DOUBLE if the other side, operand or subquery, is floating.
fn in_subquery(within: &mut InSubquery, schema: &DFSchema) -> DfResult<bool> {
    let plan = &within.subquery.subquery;
    let (Ok(own), [field]) = (within.expr.get_type(schema), &plan.schema().fields()[..]) else {
        return Ok(false);
    };
    let theirs = field.data_type();
    if !mixed(&mut [&own, theirs].into_iter()) {
        return Ok(false);
    }
    if own.is_decimal() {
        *within.expr = cast(std::mem::take(&mut *within.expr), DataType::Float64);
    } else {
        let field = Arc::new(Field::clone(field).with_data_type(DataType::Float64));
        let (qualifier, _) = plan.schema().qualified_field(0);
        let fields = vec![(qualifier.cloned(), field)];
        let wanted = DFSchema::new_with_metadata(fields, plan.schema().metadata().clone())?;
        let cast = coerce_plan_expr_for_schema(LogicalPlan::clone(plan), &wanted)?;
        within.subquery.subquery = Arc::new(cast);
    }
    Ok(true)
}

/// The queries of a UNION with its columns' types; the flag says whether any type was different.
pub(super) fn union_of_doubles(union: Union) -> DfResult<(bool, LogicalPlan)> {
    // Queries that do not go together are refused where types are made to agree.
    let Ok(common) = coerce_union_schema(&union.inputs) else {
        return Ok((false, LogicalPlan::Union(union)));
    };
    let types_of = |column: usize| {
        let inputs = union.inputs.iter();
        inputs.map(move |input| input.schema().field(column).data_type())
    };
    let doubles: Vec<bool> =
        (0..common.fields().len()).map(|column| mixed(&mut types_of(column))).collect();
    let schema = with_doubles(&common, &doubles)?;
    let mut inputs = union.inputs;
    if doubles.contains(&true) {
        for input in &mut inputs {
            let plan = Arc::unwrap_or_clone(std::mem::take(input));
            *input = Arc::new(coerce_plan_expr_for_schema(plan, &schema)?);
        }
    }
    let changed = schema != *union.schema;
    Ok((changed, LogicalPlan::Union(Union { inputs, schema: Arc::new(schema) })))
}

/// A schema with some of its columns as doubles.
fn with_doubles(schema: &DFSchema, doubles: &[bool]) -> DfResult<DFSchema> {
    let fields = schema.iter().zip(doubles).map(|((qualifier, field), double)| {
        let field = match double {
            true => Arc::new(Field::clone(field).with_data_type(DataType::Float64)),
            false => field.clone(),
        };
        (qualifier.cloned(), field)
    });
    DFSchema::new_with_metadata(fields.collect(), schema.metadata().clone())
}

/// VALUES with doubles in place of the decimals that DataFusion has made of them, where a column
/// has both; says whether there were any.
pub(super) fn values_of_doubles(mut values: Values) -> DfResult<(bool, LogicalPlan)> {
    let empty = DFSchema::empty();
    // A cast that the query has itself stands within another of the same type.
    let was_floating = |cell: &Expr, of: &DataType| match cell {
        Expr::Cast(cast) if cast.field.data_type() == of => {
            cast.expr.get_type(&empty).is_ok_and(|t| t.is_floating())
        }
        _ => false,
    };
    let doubles: Vec<bool> = values
        .schema
        .fields()
        .iter()
        .enumerate()
        .map(|(column, field)| {
            let of = field.data_type();
            of.is_decimal() && values.values.iter().any(|row| was_floating(&row[column], of))
        })
        .collect();
    if !doubles.contains(&true) {
        return Ok((false, LogicalPlan::Values(values)));
    }
    for row in &mut values.values {
        for (cell, _) in row.iter_mut().zip(&doubles).filter(|(_, double)| **double) {
            let plain = match std::mem::take(cell) {
                Expr::Cast(cast) => *cast.expr,
                other => other,
            };
            *cell = cast(plain, DataType::Float64);
        }
    }
    values.schema = Arc::new(with_doubles(&values.schema, &doubles)?);
    Ok((true, LogicalPlan::Values(values)))
}

/// The type in which values of several types stand side by side.
pub(super) fn common_type(types: &[DataType]) -> Option<DataType> {
    let numbers = types.iter().all(|t| t.is_numeric() || t.is_null());
    match numbers && mixed(&mut types.iter()) {
        true => Some(DataType::Float64),
        false => type_union_resolution(types),
    }
}

/// Whether some of the types are decimal and some floating.
fn mixed(types: &mut dyn Iterator<Item = &DataType>) -> bool {
    let (mut decimal, mut floating) = (false, false);
    for data_type in types {
        decimal |= data_type.is_decimal();
        floating |= data_type.is_floating();
    }
    decimal && floating
}
