//! A DECIMAL beside a DOUBLE or FLOAT becomes a DOUBLE, as in Flink. DataFusion would make both a
//! DECIMAL, which keeps neither very small nor very large numbers, nor NaN.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field};
use datafusion_common::{DFSchema, Result as DfResult, ScalarValue};
use datafusion_expr::expr_rewriter::coerce_plan_expr_for_schema;
use datafusion_expr::{Cast, Expr, ExprSchemable, LogicalPlan, Union};
use datafusion_optimizer::analyzer::type_coercion::coerce_union_schema;

/// Casts the decimals among parts of an expression that get one type, if others of them are
/// floating; says whether there were any. Literals that a decimal can hold do not count: beside a
/// decimal they are taken exactly.
pub(super) fn decimals_as_doubles(parts: Vec<&mut Expr>, schema: &DFSchema) -> bool {
    let types: Vec<Option<DataType>> = parts.iter().map(|e| e.get_type(schema).ok()).collect();
    let counted = parts.iter().zip(&types).filter(|(part, _)| !is_exact_literal(part));
    if !mixed(&mut counted.filter_map(|(_, data_type)| data_type.as_ref())) {
        return false;
    }
    for (part, data_type) in parts.into_iter().zip(types) {
        if data_type.is_some_and(|t| t.is_decimal()) {
            *part = Expr::Cast(Cast::new(Box::new(std::mem::take(part)), DataType::Float64));
        }
    }
    true
}

/// The queries of a UNION with its columns' types; says whether they had others before.
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
    let fields = common.iter().zip(&doubles).map(|((qualifier, field), double)| {
        let field = match double {
            true => Arc::new(Field::clone(field).with_data_type(DataType::Float64)),
            false => field.clone(),
        };
        (qualifier.cloned(), field)
    });
    let schema = DFSchema::new_with_metadata(fields.collect(), common.metadata().clone())?;
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

/// Whether an expression is a floating literal of at most 15 digits on each side of its point, as
/// DataFusion's decimal for a DOUBLE has.
fn is_exact_literal(expr: &Expr) -> bool {
    const DIGITS: usize = 15;
    match expr {
        Expr::Negative(inner) => is_exact_literal(inner),
        Expr::Literal(ScalarValue::Float64(Some(value)), _) => {
            let text = value.abs().to_string();
            let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
            value.is_finite() && whole.len() <= DIGITS && fraction.len() <= DIGITS
        }
        _ => false,
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
