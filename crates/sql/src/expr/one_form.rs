//! Operands of comparisons that are floating-point numbers, in one form for each value
//! ([`floats`]): arrow compares their bits, so that a computed NaN, whose sign bit is set, would be
//! less than everything.

use crate::expr::composed::{Compose, Parts};
use crate::syntax::prelude::*;

use datafusion_physical_expr::expressions::{BinaryExpr, CaseExpr, Literal};
use millstream_contract::floats;

/// An operand with a single form of NaN and of zero.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct OneForm;

/// A comparison, or a CASE that compares, with its operands in one form; `None` if nothing is to be
/// changed.
pub(crate) fn of_comparison(
    expr: &Arc<dyn PhysicalExpr>,
    schema: &Schema,
) -> DfResult<Option<Arc<dyn PhysicalExpr>>> {
    if let Some(case) = expr.downcast_ref::<CaseExpr>() {
        let Some(operand) = case.expr() else { return Ok(None) };
        if !operand.data_type(schema)?.is_floating() {
            return Ok(None);
        }
        let branches = case.when_then_expr().iter();
        let branches = branches.map(|(when, then)| Ok((one_form(when)?, then.clone())));
        let branches = branches.collect::<DfResult<Vec<_>>>()?;
        let otherwise = case.else_expr().cloned();
        let case = CaseExpr::try_new(Some(one_form(operand)?), branches, otherwise)?;
        return Ok(Some(Arc::new(case)));
    }
    let Some(binary) = expr.downcast_ref::<BinaryExpr>() else { return Ok(None) };
    if !compares(binary.op()) || !binary.left().data_type(schema)?.is_floating() {
        return Ok(None);
    }
    let (left, right) = (one_form(binary.left())?, one_form(binary.right())?);
    Ok(Some(Arc::new(BinaryExpr::new(left, *binary.op(), right))))
}

/// Whether an operator compares.
pub(crate) fn compares(op: &Operator) -> bool {
    use Operator::*;
    matches!(op, Eq | NotEq | Lt | LtEq | Gt | GtEq | IsDistinctFrom | IsNotDistinctFrom)
}

fn one_form(operand: &Arc<dyn PhysicalExpr>) -> DfResult<Arc<dyn PhysicalExpr>> {
    Ok(match operand.downcast_ref::<Literal>() {
        Some(literal) => Arc::new(Literal::new(of_value(literal.value())?)),
        None => OneForm.over(vec![operand.clone()]),
    })
}

fn of_value(value: &ScalarValue) -> DfResult<ScalarValue> {
    ScalarValue::try_from_array(&floats::one_form(&value.to_array()?), 0)
}

impl Compose for OneForm {
    fn evaluate(&self, parts: &Parts, batch: &RecordBatch) -> DfResult<ColumnarValue> {
        Ok(match parts[0].evaluate(batch)? {
            ColumnarValue::Array(array) => ColumnarValue::Array(floats::one_form(&array)),
            ColumnarValue::Scalar(value) => ColumnarValue::Scalar(of_value(&value)?),
        })
    }
}
