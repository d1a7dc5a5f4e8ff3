//! Lazy evaluation of `a AND b` and `a OR b` where `b` may fail: `b` is evaluated only for the rows
//! that `a` does not decide. So `v <> 0 AND 10 / v > 1` never divides by zero.

use arrow::buffer::BooleanBuffer;
use arrow::compute::{and_kleene, or_kleene};
use datafusion_physical_expr::expressions::{
    BinaryExpr, Column, InListExpr, IsNotNullExpr, IsNullExpr, LikeExpr, Literal, NotExpr,
};

use crate::expr::composed::{Compose, Composed, Parts};
use crate::expr::one_form::{OneForm, compares};
use crate::syntax::prelude::*;

/// AND or OR whose right side is evaluated only where the left side does not decide.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct LazyBoolean {
    /// AND, otherwise OR.
    and: bool,
}

impl LazyBoolean {
    /// `None` if the right side cannot fail: then evaluating it for all rows is faster.
    pub(crate) fn when_needed(
        left: &Arc<dyn PhysicalExpr>,
        and: bool,
        right: &Arc<dyn PhysicalExpr>,
    ) -> Option<Arc<dyn PhysicalExpr>> {
        (!cannot_fail(right)).then(|| LazyBoolean { and }.over(vec![left.clone(), right.clone()]))
    }
}

/// Whether evaluation gives a value whatever the row.
pub(crate) fn cannot_fail(expr: &Arc<dyn PhysicalExpr>) -> bool {
    let simple = if let Some(binary) = expr.downcast_ref::<BinaryExpr>() {
        compares(binary.op()) || matches!(binary.op(), Operator::And | Operator::Or)
    } else {
        expr.is::<Column>()
            || expr.is::<Literal>()
            || expr.is::<IsNullExpr>()
            || expr.is::<IsNotNullExpr>()
            || expr.is::<NotExpr>()
            || expr.is::<InListExpr>()
            || expr.is::<LikeExpr>()
            || expr.is::<Composed<OneForm>>()
    };
    simple && expr.children().into_iter().all(cannot_fail)
}

impl Compose for LazyBoolean {
    fn data_type(&self, _: &Parts, _: &Schema) -> DfResult<DataType> {
        Ok(DataType::Boolean)
    }

    fn evaluate(&self, parts: &Parts, batch: &RecordBatch) -> DfResult<ColumnarValue> {
        let rows = batch.num_rows();
        let left = booleans(parts[0].evaluate(batch)?, rows)?;
        let open: BooleanBuffer =
            (0..rows).map(|row| left.is_null(row) || left.value(row) == self.and).collect();
        if open.count_set_bits() == 0 {
            return Ok(ColumnarValue::Array(Arc::new(left)));
        }
        let right = parts[1].evaluate_selection(batch, &BooleanArray::new(open, None))?;
        let right = booleans(right, rows)?;
        let both = if self.and { and_kleene(&left, &right)? } else { or_kleene(&left, &right)? };
        Ok(ColumnarValue::Array(Arc::new(both)))
    }

    fn write(&self, parts: &Parts, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({}) {} ({})", parts[0], if self.and { "AND" } else { "OR" }, parts[1])
    }
}

fn booleans(value: ColumnarValue, rows: usize) -> DfResult<BooleanArray> {
    if let ColumnarValue::Scalar(ScalarValue::Null) = value {
        return Ok(BooleanArray::new_null(rows));
    }
    let array = value.into_array(rows)?;
    match array.as_boolean_opt() {
        Some(booleans) => Ok(booleans.clone()),
        None => internal_err!("a condition of type {}", array.data_type()),
    }
}
