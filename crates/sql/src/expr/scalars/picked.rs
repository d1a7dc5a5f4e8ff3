//! `CASE` whose results exist already: columns, fields of rows, constants. The results are
//! evaluated for all rows, which copies nothing, and then a result is picked for each row.
//! DataFusion's `CASE` first copies the rows of each branch, with all columns that any branch uses:
//! a row with all of its texts, for the sake of a number.

use arrow::{compute::kernels::zip::zip, compute::prep_null_mask_filter};
use datafusion_physical_expr::ScalarFunctionExpr;
use datafusion_physical_expr::expressions::{
    BinaryExpr, CaseExpr, Column, IsNotNullExpr, IsNullExpr, Literal,
};

use crate::expr::composed::{Compose, Composed, Parts};
use crate::expr::lazy::sides;
use crate::expr::one_form::OneForm;
use crate::syntax::prelude::*;
use crate::syntax::subscripts::FIELD;

/// A choice among values by conditions, none of which can fail. The parts are the conditions, then
/// the result of each, then the result of the rows for which none holds. The first condition
/// that holds counts.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct PickExpr {
    field: FieldRef,
}

impl PickExpr {
    /// The compiled form of a CASE; `None` if `expr` is not a CASE, or has results of other kinds.
    pub(crate) fn of_case(
        expr: &Arc<dyn PhysicalExpr>,
        schema: &Schema,
    ) -> DfResult<Option<Arc<dyn PhysicalExpr>>> {
        let Some(case) = expr.downcast_ref::<CaseExpr>() else { return Ok(None) };
        let field = case.return_field(schema)?;
        let data_type = field.data_type();
        if case.expr().is_some() || is_nested(data_type) {
            return Ok(None);
        }
        let (conditions, mut results): (Vec<_>, Vec<_>) =
            case.when_then_expr().iter().cloned().unzip();
        results.push(match case.else_expr() {
            Some(otherwise) => otherwise.clone(),
            None => Arc::new(Literal::new(ScalarValue::try_from(data_type)?)),
        });
        // Picking pays where a row's fields would be copied.
        let fields = results.iter().any(|result| result.downcast_ref::<Column>().is_none());
        let there = results.iter().all(is_there) && conditions.iter().all(is_plain);
        for result in &results {
            if result.data_type(schema)? != *data_type {
                return Ok(None);
            }
        }
        Ok((fields && there).then(|| PickExpr { field }.over([conditions, results].concat())))
    }
}

/// Whether an expression is a field of a row, which is a column, or a field of one.
pub(crate) fn is_field(expr: &Arc<dyn PhysicalExpr>) -> bool {
    let Some(call) = expr.downcast_ref::<ScalarFunctionExpr>() else { return false };
    call.name() == FIELD
        && (call.args().first())
            .is_some_and(|row| row.downcast_ref::<Column>().is_some() || is_field(row))
}

/// Whether an expression picks values of a fixed length that are there.
pub(crate) fn picks(expr: &Arc<dyn PhysicalExpr>, schema: &Schema) -> bool {
    expr.downcast_ref::<Composed<PickExpr>>().is_some()
        && expr.data_type(schema).is_ok_and(|data_type| data_type.is_primitive())
}

/// Whether a value is there for every row: a column, a field of such a value, a constant.
pub(super) fn is_there(expr: &Arc<dyn PhysicalExpr>) -> bool {
    if let Some(call) = expr.downcast_ref::<ScalarFunctionExpr>() {
        return call.name() == FIELD && call.args().iter().all(is_there);
    }
    if let Some(form) = expr.downcast_ref::<Composed<OneForm>>() {
        return is_there(&form.parts[0]);
    }
    expr.downcast_ref::<Column>().is_some() || expr.downcast_ref::<Literal>().is_some()
}

/// Whether a condition compares such values, and so can fail for no row.
fn is_plain(expr: &Arc<dyn PhysicalExpr>) -> bool {
    if let Some(both) = sides(expr, true).or_else(|| sides(expr, false)) {
        return both.into_iter().all(is_plain);
    }
    if let Some(binary) = expr.downcast_ref::<BinaryExpr>() {
        use Operator::{Eq, Gt, GtEq, Lt, LtEq, NotEq};
        let compares = matches!(binary.op(), Eq | NotEq | Lt | LtEq | Gt | GtEq);
        return compares && is_there(binary.left()) && is_there(binary.right());
    }
    let of_null = expr.downcast_ref::<IsNullExpr>().map(IsNullExpr::arg);
    let of_null = of_null.or_else(|| expr.downcast_ref::<IsNotNullExpr>().map(IsNotNullExpr::arg));
    of_null.is_some_and(is_there)
}

/// The rows for which a condition is TRUE.
fn holding(condition: &Arc<dyn PhysicalExpr>, batch: &RecordBatch) -> DfResult<BooleanArray> {
    let holds = condition.evaluate(batch)?.into_array(batch.num_rows())?;
    let Some(holds) = holds.as_any().downcast_ref::<BooleanArray>() else {
        return internal_err!("a condition of type {}", holds.data_type());
    };
    Ok(match holds.null_count() {
        0 => holds.clone(),
        _ => prep_null_mask_filter(holds),
    })
}

impl Compose for PickExpr {
    fn data_type(&self, _: &Parts, _: &Schema) -> DfResult<DataType> {
        Ok(self.field.data_type().clone())
    }

    fn nullable(&self, _: &Parts, _: &Schema) -> DfResult<bool> {
        Ok(self.field.is_nullable())
    }

    fn evaluate(&self, parts: &Parts, batch: &RecordBatch) -> DfResult<ColumnarValue> {
        let rows = batch.num_rows();
        let (conditions, results) = parts.split_at(parts.len() / 2);
        let value = |at: usize| results[at].evaluate(batch)?.into_array(rows);
        let last = conditions.len();
        // From the last to the first, so the first that holds has the last word.
        let mut picked: Option<ArrayRef> = None;
        for (at, condition) in conditions.iter().enumerate().rev() {
            let holds = holding(condition, batch)?;
            match holds.true_count() {
                0 => {}
                all if all == rows => picked = Some(value(at)?),
                _ => {
                    let others = match picked.take() {
                        Some(others) => others,
                        None => value(last)?,
                    };
                    picked = Some(zip(&holds, &value(at)?, &others)?);
                }
            }
        }
        Ok(ColumnarValue::Array(match picked {
            Some(picked) => picked,
            None => value(last)?,
        }))
    }

    fn write(&self, parts: &Parts, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (conditions, results) = parts.split_at(parts.len() / 2);
        write!(f, "CASE")?;
        for (condition, result) in conditions.iter().zip(results) {
            write!(f, " WHEN {condition} THEN {result}")?;
        }
        write!(f, " ELSE {} END", results[conditions.len()])
    }
}
