//! `CASE` whose results exist already: columns, fields of rows, constants. The results are
//! evaluated for all rows, which copies nothing, and then a result is picked for each row.
//! DataFusion's `CASE` first copies the rows of each branch, with all columns that any branch uses:
//! a row with all of its texts, for the sake of a number.

use arrow::compute::kernels::zip::zip;
use arrow::compute::prep_null_mask_filter;
use datafusion_physical_expr::ScalarFunctionExpr;
use datafusion_physical_expr::expressions::{
    BinaryExpr, CaseExpr, Column, IsNotNullExpr, IsNullExpr, Literal,
};

use crate::expr::one_form::OneForm;
use crate::syntax::prelude::*;
use crate::syntax::subscripts::FIELD;

/// A choice among values by conditions, none of which can fail.
#[derive(Debug, Clone, Eq)]
pub(crate) struct PickExpr {
    /// In their order; the first that holds counts.
    conditions: Vec<Arc<dyn PhysicalExpr>>,
    /// Of each condition, and of the rows for which none holds.
    results: Vec<Arc<dyn PhysicalExpr>>,
    field: FieldRef,
}

impl PickExpr {
    /// The compiled form of a CASE; `None` if `expr` is not a CASE, or has results of other kinds.
    pub(crate) fn of_case(
        expr: &Arc<dyn PhysicalExpr>,
        schema: &Schema,
    ) -> DfResult<Option<PickExpr>> {
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
        Ok((fields && there).then_some(PickExpr { conditions, results, field }))
    }
}

/// Whether an expression is a field of a row, which is a column, or a field of one.
pub(crate) fn is_field(expr: &Arc<dyn PhysicalExpr>) -> bool {
    let Some(call) = expr.downcast_ref::<ScalarFunctionExpr>() else { return false };
    call.name() == FIELD
        && (call.args().first())
            .is_some_and(|row| row.downcast_ref::<Column>().is_some() || is_field(row))
}

/// Whether a value is there for every row: a column, a field of such a value, a constant.
fn is_there(expr: &Arc<dyn PhysicalExpr>) -> bool {
    if let Some(call) = expr.downcast_ref::<ScalarFunctionExpr>() {
        return call.name() == FIELD && call.args().iter().all(is_there);
    }
    if let Some(form) = expr.downcast_ref::<OneForm>() {
        return is_there(&form.operand);
    }
    expr.downcast_ref::<Column>().is_some() || expr.downcast_ref::<Literal>().is_some()
}

/// Whether a condition compares such values, and so can fail for no row.
fn is_plain(expr: &Arc<dyn PhysicalExpr>) -> bool {
    if let Some(binary) = expr.downcast_ref::<BinaryExpr>() {
        use Operator::{And, Eq, Gt, GtEq, Lt, LtEq, NotEq, Or};
        return match binary.op() {
            And | Or => is_plain(binary.left()) && is_plain(binary.right()),
            Eq | NotEq | Lt | LtEq | Gt | GtEq => {
                is_there(binary.left()) && is_there(binary.right())
            }
            _ => false,
        };
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

impl PartialEq for PickExpr {
    fn eq(&self, other: &Self) -> bool {
        self.conditions == other.conditions
            && self.results == other.results
            && self.field == other.field
    }
}

impl Hash for PickExpr {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.conditions, &self.results).hash(state);
    }
}

impl fmt::Display for PickExpr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CASE")?;
        for (condition, result) in self.conditions.iter().zip(&self.results) {
            write!(f, " WHEN {condition} THEN {result}")?;
        }
        if let Some(otherwise) = self.results.last() {
            write!(f, " ELSE {otherwise}")?;
        }
        f.write_str(" END")
    }
}

impl PhysicalExpr for PickExpr {
    fn data_type(&self, _: &Schema) -> DfResult<DataType> {
        Ok(self.field.data_type().clone())
    }

    fn nullable(&self, _: &Schema) -> DfResult<bool> {
        Ok(self.field.is_nullable())
    }

    fn return_field(&self, _: &Schema) -> DfResult<FieldRef> {
        Ok(self.field.clone())
    }

    fn evaluate(&self, batch: &RecordBatch) -> DfResult<ColumnarValue> {
        let rows = batch.num_rows();
        let value = |at: usize| self.results[at].evaluate(batch)?.into_array(rows);
        let last = self.conditions.len();
        // From the last to the first, so the first that holds has the last word.
        let mut picked: Option<ArrayRef> = None;
        for (at, condition) in self.conditions.iter().enumerate().rev() {
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

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        self.conditions.iter().chain(&self.results).collect()
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn PhysicalExpr>>,
    ) -> DfResult<Arc<dyn PhysicalExpr>> {
        if children.len() != self.conditions.len() + self.results.len() {
            return internal_err!("{self} keeps its number of branches");
        }
        let mut conditions = children;
        let results = conditions.split_off(self.conditions.len());
        Ok(Arc::new(PickExpr { conditions, results, field: self.field.clone() }))
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
