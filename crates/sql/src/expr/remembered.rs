//! Calls that a condition and the columns of the passing rows have in common, such as a search for
//! the part of a text. The condition remembers the values of a batch by numbers of rows, and the
//! columns look these values up. Rows without remembered values are evaluated, as ever: a query
//! fails on the same rows, with the same errors.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::{UInt32Array, UInt64Array};
use arrow::compute::take;
use arrow::datatypes::UInt64Type;
use datafusion_physical_expr::ScalarFunctionExpr;
use datafusion_physical_expr::expressions::Column as PhysicalColumn;
use millstream_contract::expr::ROW_NUMBERS;

use crate::expr::composed::{Compose, Parts};
use crate::syntax::prelude::*;

/// Functions that search texts. Remembering the values takes less time.
const SEARCHES: [&str; 12] = [
    "json_exists",
    "json_query",
    "json_value",
    "parse_url",
    "regexp_count",
    "regexp_extract",
    "regexp_instr",
    "regexp_like",
    "regexp_replace",
    "regexp_substr",
    "similar_to",
    "split_index",
];

/// Expressions whose values a thread remembers.
const KEPT_MAX: usize = 8;
/// Larger values of a batch are not remembered.
const KEPT_BYTES_MAX: usize = 2 << 20;

/// Calls that a condition shares with columns.
pub(crate) struct Shared {
    /// Compiled calls and their numbers.
    known: RefCell<Vec<(Arc<dyn PhysicalExpr>, u64)>>,
    /// The place of row numbers.
    place: usize,
}

impl Shared {
    /// `None` if conditions and columns over `schema` have no search in common.
    pub(crate) fn among(
        conditions: &[Expr],
        columns: &[Expr],
        schema: &DFSchema,
    ) -> Result<Option<Shared>> {
        let searches = |exprs: &[Expr]| -> DfResult<BTreeSet<String>> {
            let mut names = BTreeSet::new();
            for expr in exprs {
                expr.each(|e| {
                    if let Expr::ScalarFunction(call) = e
                        && SEARCHES.contains(&call.name())
                    {
                        names.insert(call.name().to_string());
                    }
                    Ok(())
                })?;
            }
            Ok(names)
        };
        let common = !searches(conditions)?.is_disjoint(&searches(columns)?);
        let place = schema.fields().len();
        Ok(common.then(|| Shared { known: RefCell::default(), place }))
    }

    /// An expression that remembers the values of its searches, with the place of row numbers if
    /// there are any.
    pub(crate) fn remembering(
        &self,
        expr: Arc<dyn PhysicalExpr>,
    ) -> DfResult<(Arc<dyn PhysicalExpr>, Option<usize>)> {
        let remembering = expr.changed_up(|e| match e.downcast_ref::<ScalarFunctionExpr>() {
            Some(call) if SEARCHES.contains(&call.name()) => {
                let how = Remembered { number: self.number_of(&e) };
                let numbers = PhysicalColumn::new(ROW_NUMBERS, self.place);
                Ok(Transformed::yes(how.over(vec![e, Arc::new(numbers)])))
            }
            _ => Ok(Transformed::no(e)),
        })?;
        Ok((remembering.data, remembering.transformed.then_some(self.place)))
    }

    /// The number of a call; equal calls have the same.
    fn number_of(&self, call: &Arc<dyn PhysicalExpr>) -> u64 {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let mut known = self.known.borrow_mut();
        if let Some((_, number)) = known.iter().find(|(other, _)| other == call) {
            return *number;
        }
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        known.push((call.clone(), number));
        number
    }
}

/// A call whose values are remembered. The parts are the call and the column of row numbers.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Remembered {
    number: u64,
}

impl Compose for Remembered {
    fn nullable(&self, parts: &Parts, schema: &Schema) -> DfResult<bool> {
        parts[0].nullable(schema)
    }

    fn evaluate(&self, parts: &Parts, batch: &RecordBatch) -> DfResult<ColumnarValue> {
        let Some(rows) = row_numbers(&parts[1], batch) else { return parts[0].evaluate(batch) };
        if let Some(values) = KEPT.with_borrow(|kept| kept.values(self.number, rows))? {
            return Ok(ColumnarValue::Array(values));
        }
        let value = parts[0].evaluate(batch)?;
        if let ColumnarValue::Array(values) = &value {
            KEPT.with_borrow_mut(|kept| kept.keep(self.number, rows, values));
        }
        Ok(value)
    }
}

/// The row numbers of a batch, if any.
fn row_numbers<'b>(
    column: &Arc<dyn PhysicalExpr>,
    batch: &'b RecordBatch,
) -> Option<&'b UInt64Array> {
    let place = column.downcast_ref::<PhysicalColumn>()?.index();
    let field = batch.schema_ref().fields().get(place)?;
    (field.name() == ROW_NUMBERS).then(|| batch.column(place).as_primitive_opt::<UInt64Type>())?
}

/// Values of the last rows of some calls.
#[derive(Default)]
struct Kept(Vec<(u64, UInt64Array, ArrayRef)>);

thread_local! {
    static KEPT: RefCell<Kept> = RefCell::default();
}

impl Kept {
    fn keep(&mut self, number: u64, rows: &UInt64Array, values: &ArrayRef) {
        self.0.retain(|(other, ..)| *other != number);
        if values.get_array_memory_size() > KEPT_BYTES_MAX {
            return;
        }
        if self.0.len() >= KEPT_MAX {
            self.0.remove(0);
        }
        self.0.push((number, rows.clone(), values.clone()));
    }

    /// The values of some rows, if all are known.
    fn values(&self, number: u64, rows: &UInt64Array) -> DfResult<Option<ArrayRef>> {
        let known = self.0.iter().find(|(other, ..)| *other == number);
        let Some((_, known, values)) = known else { return Ok(None) };
        let Some(places) = places(known.values(), rows.values()) else { return Ok(None) };
        Ok(Some(match places.len() == values.len() {
            true => values.clone(),
            false => take(values, &UInt32Array::from(places), None)?,
        }))
    }
}

/// Where numbers stand among others; both ascend. `None` unless all do.
fn places(among: &[u64], numbers: &[u64]) -> Option<Vec<u32>> {
    let mut at = 0;
    let place = |number: &u64| {
        at += among[at..].iter().position(|other| other >= number)?;
        (among[at] == *number).then_some(at as u32)
    };
    numbers.iter().map(place).collect()
}

#[cfg(test)]
mod tests {
    use datafusion_physical_expr::expressions::col;

    use super::*;

    /// Rows with known numbers have the remembered values; other batches are evaluated.
    #[test]
    fn values_are_remembered_by_row_numbers() {
        let batch = |texts: &[&str], rows: Option<&[u64]>| {
            let texts: ArrayRef = Arc::new(StringArray::from(texts.to_vec()));
            let numbers = rows.map(|rows| -> (&str, ArrayRef) {
                (ROW_NUMBERS, Arc::new(UInt64Array::from(rows.to_vec())))
            });
            RecordBatch::try_from_iter([("v", texts)].into_iter().chain(numbers)).unwrap()
        };
        let text = col("v", &batch(&[], None).schema()).unwrap();
        let numbers = Arc::new(PhysicalColumn::new(ROW_NUMBERS, 1));
        let call = Remembered { number: u64::MAX }.over(vec![text, numbers]);
        let large = "l".repeat(KEPT_BYTES_MAX + 1);
        for (texts, rows, expected) in [
            (&["a", "b", "c"][..], Some(&[5, 6, 8][..]), &["a", "b", "c"][..]),
            (&["x", "y"], Some(&[5, 8]), &["a", "c"]),
            (&["x", "y", "z"], Some(&[5, 6, 8]), &["a", "b", "c"]),
            (&["x", "y"], None, &["x", "y"]),
            (&["x", "y"], Some(&[5, 7]), &["x", "y"]),
            (&["z"], Some(&[7]), &["y"]),
            (&["z"], Some(&[6]), &["z"]),
            (&[&large], Some(&[20]), &[&large]),
            (&["z"], Some(&[20]), &["z"]),
        ] {
            let values = call.evaluate(&batch(texts, rows)).unwrap();
            let values = values.into_array(texts.len()).unwrap();
            let values: Vec<&str> = values.as_string::<i32>().iter().flatten().collect();
            assert_eq!(values, expected, "{rows:?}");
        }
    }

    #[test]
    fn numbers_are_found_among_others_or_not_at_all() {
        let among = [3, 4, 7, 9];
        assert_eq!(places(&among, &[4, 9]), Some(vec![1, 3]));
        assert_eq!(places(&among, &among), Some(vec![0, 1, 2, 3]));
        assert_eq!(places(&among, &[]), Some(vec![]));
        assert_eq!(places(&among, &[4, 8]), None);
        assert_eq!(places(&among, &[10]), None);
        assert_eq!(places(&[], &[1]), None);
    }
}
