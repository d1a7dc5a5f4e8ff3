//! Lazy evaluation of `a AND b` and `a OR b`: `b` counts only for the rows that `a` does not
//! decide. So `v <> 0 AND 10 / v > 1` never divides by zero.
//!
//! Selecting rows for `b` costs a copy of the columns that `b` reads. Where `b` is cheap, all rows
//! are evaluated instead. If a row fails, rows are selected after all, for this batch and all later
//! ones: so a query fails on the same rows, with the same errors.

use std::sync::atomic::{AtomicBool, Ordering};

use arrow::buffer::BooleanBuffer;
use arrow::compute::{and_kleene, or_kleene};
use datafusion_physical_expr::expressions::{
    BinaryExpr, Column, InListExpr, IsNotNullExpr, IsNullExpr, LikeExpr, Literal, NotExpr,
};
use millstream_contract::reads::Reads;
use millstream_contract::texts;

use crate::expr::composed::{Compose, Composed, Parts};
use crate::expr::one_form::{OneForm, compares};
use crate::expr::reads::{read, reads_of};
use crate::syntax::prelude::*;

/// All rows are evaluated by a cheap right side where it decides at least one row in so many.
const ROWS_PER_OPEN: usize = 8;

/// AND or OR whose right side counts only where the left side does not decide.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct LazyBoolean {
    /// AND, otherwise OR.
    and: bool,
    /// Of the right side.
    reads: Reads,
    cheap: bool,
    failed: Failed,
}

/// Whether evaluating rows that do not count has failed. All values are alike.
#[derive(Debug, Default)]
struct Failed(AtomicBool);

impl Clone for Failed {
    fn clone(&self) -> Failed {
        Failed::default()
    }
}

impl PartialEq for Failed {
    fn eq(&self, _: &Failed) -> bool {
        true
    }
}

impl Eq for Failed {}

impl Hash for Failed {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

impl LazyBoolean {
    /// `left AND right`, or OR, whose right side may be cheap.
    pub(crate) fn of(
        left: &Arc<dyn PhysicalExpr>,
        and: bool,
        right: &Arc<dyn PhysicalExpr>,
        cheap: bool,
    ) -> Arc<dyn PhysicalExpr> {
        let reads = Reads::default();
        let lazy = LazyBoolean { and, reads, cheap, failed: Failed::default() };
        lazy.over(vec![left.clone(), right.clone()])
    }

    /// The right side for all rows, if that is worth it and does not fail.
    fn of_all_rows(
        &self,
        right: &Arc<dyn PhysicalExpr>,
        batch: &RecordBatch,
    ) -> Option<ColumnarValue> {
        if !self.cheap || self.failed.0.load(Ordering::Relaxed) {
            return None;
        }
        let before = texts::made();
        let value = right.evaluate(batch).ok();
        if value.is_none() {
            texts::set_made(before);
            self.failed.0.store(true, Ordering::Relaxed);
        }
        value
    }
}

/// The sides of AND, or of OR.
pub(crate) fn sides(
    expr: &Arc<dyn PhysicalExpr>,
    and: bool,
) -> Option<[&Arc<dyn PhysicalExpr>; 2]> {
    let lazy = expr.downcast_ref::<Composed<LazyBoolean>>()?;
    match &lazy.parts[..] {
        [left, right] if lazy.how.and == and => Some([left, right]),
        _ => None,
    }
}

/// Whether evaluation gives a value whatever the row.
pub(crate) fn cannot_fail(expr: &Arc<dyn PhysicalExpr>) -> bool {
    let simple = match expr.downcast_ref::<BinaryExpr>() {
        Some(binary) => compares(binary.op()),
        None => is_simple(expr),
    };
    simple && expr.children().into_iter().all(cannot_fail)
}

/// Whether an expression is of a kind that computes little, and gives a value whatever the row.
pub(crate) fn is_simple(expr: &Arc<dyn PhysicalExpr>) -> bool {
    expr.is::<Column>()
        || expr.is::<Literal>()
        || expr.is::<IsNullExpr>()
        || expr.is::<IsNotNullExpr>()
        || expr.is::<NotExpr>()
        || expr.is::<InListExpr>()
        || expr.is::<LikeExpr>()
        || expr.is::<Composed<OneForm>>()
        || expr.is::<Composed<LazyBoolean>>()
}

impl Compose for LazyBoolean {
    fn over(self, parts: Parts) -> Arc<dyn PhysicalExpr> {
        let reads = reads_of(&parts[1]);
        Arc::new(Composed { how: LazyBoolean { reads, ..self }, parts })
    }

    fn data_type(&self, _: &Parts, _: &Schema) -> DfResult<DataType> {
        Ok(DataType::Boolean)
    }

    fn evaluate(&self, parts: &Parts, batch: &RecordBatch) -> DfResult<ColumnarValue> {
        let rows = batch.num_rows();
        let left = booleans(parts[0].evaluate(batch)?, rows)?;
        let open = self.open(&left);
        let count = open.count_set_bits();
        if count == 0 {
            return Ok(ColumnarValue::Array(Arc::new(left)));
        }
        let of_all =
            if count * ROWS_PER_OPEN < rows { None } else { self.of_all_rows(&parts[1], batch) };
        let right = match of_all {
            Some(right) => right,
            None if count == rows => parts[1].evaluate(batch)?,
            None => {
                let batch = read(&self.reads, batch)?;
                parts[1].evaluate_selection(&batch, &BooleanArray::new(open, None))?
            }
        };
        let right = booleans(right, rows)?;
        let both = if self.and { and_kleene(&left, &right)? } else { or_kleene(&left, &right)? };
        Ok(ColumnarValue::Array(Arc::new(both)))
    }

    fn write(&self, parts: &Parts, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({}) {} ({})", parts[0], if self.and { "AND" } else { "OR" }, parts[1])
    }
}

impl LazyBoolean {
    /// The rows that the left side does not decide.
    fn open(&self, left: &BooleanArray) -> BooleanBuffer {
        let open = if self.and { left.values().clone() } else { !left.values() };
        match left.nulls().filter(|nulls| nulls.null_count() > 0) {
            Some(nulls) => &open | &!nulls.inner(),
            None => open,
        }
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

#[cfg(test)]
mod tests {
    use datafusion_physical_expr::expressions::{binary, col, lit};

    use super::*;

    fn batch(values: Vec<Option<i64>>) -> RecordBatch {
        RecordBatch::try_from_iter([("v", Arc::new(Int64Array::from(values)) as ArrayRef)]).unwrap()
    }

    /// The right side of `a OR b` reads the second column; renumbered, the first.
    #[test]
    fn parts_may_be_numbered_anew() {
        let values = Arc::new(BooleanArray::from(vec![true, false, true]));
        let none = Arc::new(BooleanArray::from(vec![true, false, false]));
        let columns: [(&str, ArrayRef); 2] = [("a", none), ("b", values)];
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let schema = batch.schema();
        let [a, b] = ["a", "b"].map(|name| col(name, &schema).unwrap());
        let lazy = LazyBoolean::of(&a, false, &b, false);
        let anew = lazy.clone().with_new_children(vec![b, a]).unwrap();
        for either in [lazy, anew] {
            let value = either.evaluate(&batch).unwrap().into_array(3).unwrap();
            assert_eq!(value.as_boolean(), &BooleanArray::from(vec![true, false, true]));
        }
    }

    /// `v <> 0 AND v + 1 > 1`, of which the right side fails with the greatest number.
    #[test]
    fn rows_that_the_left_side_decides_do_not_fail() {
        let batches = [
            batch(vec![Some(0), Some(1), None, Some(-5)]),
            batch(vec![Some(0), Some(i64::MAX), Some(7), Some(8)]),
            batch(vec![Some(1), Some(-1), Some(0)]),
        ];
        let schema = batches[0].schema();
        let both = |left, op, right| binary(left, op, right, &schema).unwrap();
        let v = || col("v", &schema).unwrap();
        let more = BinaryExpr::new(v(), Operator::Plus, lit(1i64)).with_fail_on_overflow(true);
        let right = both(Arc::new(more), Operator::Gt, lit(1i64));
        let not_most = both(v(), Operator::NotEq, lit(i64::MAX));
        let most = both(v(), Operator::Eq, lit(i64::MAX));
        for (and, left) in [(true, not_most), (false, most)] {
            let lazy = LazyBoolean::of(&left, and, &right, true);
            let values = |batch: &RecordBatch| {
                let value = lazy.evaluate(batch).unwrap().into_array(batch.num_rows()).unwrap();
                value.as_boolean().iter().collect::<Vec<_>>()
            };
            assert_eq!(values(&batches[0]), [Some(false), Some(true), None, Some(false)]);
            let failed = |lazy: &Arc<dyn PhysicalExpr>| {
                let lazy = lazy.downcast_ref::<Composed<LazyBoolean>>().unwrap();
                lazy.how.failed.0.load(Ordering::Relaxed)
            };
            assert!(!failed(&lazy));
            assert_eq!(values(&batches[1]), [Some(false), Some(!and), Some(true), Some(true)]);
            assert!(failed(&lazy));
            assert_eq!(values(&batches[2]), [Some(true), Some(false), Some(false)]);
            let alone = LazyBoolean::of(&right, and, &left, true);
            assert!(alone.evaluate(&batches[1]).is_err());
        }
    }
}
