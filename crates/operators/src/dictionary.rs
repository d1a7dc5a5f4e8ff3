//! Texts that come as dictionaries: a batch has each value once, and each row says which is its
//! own ([`crate::plan::Plan::dictionaries`]). Keys and conditions look at each value once.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, DictionaryArray, RecordBatch, RecordBatchOptions, UInt32Array,
    new_null_array,
};
use arrow::compute::{cast, concat, take};
use arrow::datatypes::{DataType, Field, Int32Type, Schema, SchemaRef};

use crate::error::Result;
use crate::expr::Expr;

/// The schema of the first columns of `schema`; some columns may be dictionaries of the schema's
/// type.
pub(crate) fn schema_of(schema: &SchemaRef, columns: &[ArrayRef]) -> SchemaRef {
    let fields = schema.fields();
    let is_dictionary = |column: &ArrayRef| matches!(column.data_type(), DataType::Dictionary(..));
    if columns.len() == fields.len() && !columns.iter().any(is_dictionary) {
        return schema.clone();
    }
    let field = |(field, column): (&Arc<Field>, &ArrayRef)| match is_dictionary(column) {
        true => Arc::new(field.as_ref().clone().with_data_type(column.data_type().clone())),
        false => field.clone(),
    };
    Arc::new(Schema::new(fields.iter().zip(columns).map(field).collect::<Vec<_>>()))
}

/// Values of `condition` for the records; computed once per dictionary value if the condition is
/// about a single column, a dictionary.
pub(crate) fn evaluate(condition: &Expr, records: &RecordBatch) -> Result<ArrayRef> {
    let Some((column, texts)) = texts_of(condition, records) else {
        return condition.evaluate(records);
    };
    // A value may be one of other records alone, and fail: then each record is asked.
    if texts.values().len() < records.num_rows()
        && let Ok(answers) = condition.evaluate(&values_in(records, column, texts)?)
    {
        let values = texts.values().len() as u32;
        let value = |key: Option<i32>| key.map_or(values, |key| key as u32);
        return match texts.keys().null_count() {
            0 => Ok(take(&answers, texts.keys(), None)?),
            _ => {
                let places: UInt32Array = texts.keys().iter().map(value).collect();
                Ok(take(&answers, &places, None)?)
            }
        };
    }
    let unpacked = cast(texts, &DataType::Utf8)?;
    condition.evaluate(&with(records, column, unpacked, |column| Ok(column.clone()))?)
}

/// The single column of a condition, if it is a dictionary.
fn texts_of<'a>(
    condition: &Expr,
    records: &'a RecordBatch,
) -> Option<(usize, &'a DictionaryArray<Int32Type>)> {
    let is_dictionary = |column: &ArrayRef| matches!(column.data_type(), DataType::Dictionary(..));
    if !records.columns().iter().any(is_dictionary) {
        return None;
    }
    let [column] = condition.columns()?[..] else { return None };
    Some((column, records.columns().get(column)?.as_dictionary_opt()?))
}

/// A batch of the values of a column, and then NULL. The other columns are NULL.
fn values_in(
    records: &RecordBatch,
    column: usize,
    texts: &DictionaryArray<Int32Type>,
) -> Result<RecordBatch> {
    let none = new_null_array(texts.values().data_type(), 1);
    let values = concat(&[texts.values().as_ref(), none.as_ref()])?;
    let rows = values.len();
    with(records, column, values, |column| Ok(new_null_array(column.data_type(), rows)))
}

/// A batch with `array` in place of a column, and something else in place of the others.
fn with(
    records: &RecordBatch,
    column: usize,
    array: ArrayRef,
    other: impl Fn(&ArrayRef) -> Result<ArrayRef>,
) -> Result<RecordBatch> {
    let options = RecordBatchOptions::new().with_row_count(Some(array.len()));
    let columns = records.columns().iter().enumerate().map(|(place, column_then)| {
        if place == column { Ok(array.clone()) } else { other(column_then) }
    });
    let columns = columns.collect::<Result<Vec<_>>>()?;
    let fields = records
        .schema_ref()
        .fields()
        .iter()
        .zip(&columns)
        .map(|(field, column)| Field::new(field.name(), column.data_type().clone(), true));
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    Ok(RecordBatch::try_new_with_options(schema, columns, &options)?)
}

#[cfg(test)]
mod tests {
    use std::fmt;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use arrow::array::{BooleanArray, Int64Array, StringArray};

    use super::*;
    use crate::error::Error;
    use crate::expr::Evaluate;

    /// `text = 'b' OR text IS NULL`, which fails with the text `x`.
    #[derive(Debug, Default)]
    struct IsB {
        rows: AtomicUsize,
    }

    impl fmt::Display for IsB {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("is b")
        }
    }

    impl Evaluate for IsB {
        fn evaluate(&self, batch: &RecordBatch) -> Result<ArrayRef> {
            self.rows.fetch_add(batch.num_rows(), Ordering::Relaxed);
            let texts = batch.column(1).as_string::<i32>();
            if texts.iter().any(|text| text == Some("x")) {
                return Err(Error::Internal("x".into()));
            }
            let is = |text: Option<&str>| Some(text.is_none_or(|text| text == "b"));
            Ok(Arc::new(texts.iter().map(is).collect::<BooleanArray>()))
        }

        fn data_type(&self) -> &DataType {
            &DataType::Boolean
        }

        fn columns(&self) -> Option<Vec<usize>> {
            Some(vec![1])
        }
    }

    /// Eight records with these texts, of which the dictionary has more.
    fn records(values: &[&str], keys: [Option<i32>; 8]) -> RecordBatch {
        let values = Arc::new(StringArray::from(values.to_vec()));
        let texts = DictionaryArray::<Int32Type>::new(keys.into_iter().collect(), values);
        let numbers = Int64Array::from_iter_values(0..8);
        let columns: [(&str, ArrayRef); 2] = [("n", Arc::new(numbers)), ("text", Arc::new(texts))];
        RecordBatch::try_from_iter(columns).expect("columns of one length")
    }

    #[test]
    fn a_condition_looks_at_each_value_once() {
        let keys = [Some(0), Some(1), None, Some(1), Some(2), None, Some(0), Some(1)];
        let expected = [false, true, true, true, false, true, false, true].map(Some).to_vec();
        for (values, rows) in [
            (&["a", "b", "c"][..], 4),
            // An unused value fails: then records are evaluated instead of values.
            (&["a", "b", "c", "x"], 5 + 8),
            // More values than records.
            (&["a", "b", "c", "d", "e", "f", "g", "h"], 8),
        ] {
            let is_b = Arc::new(IsB::default());
            let condition = Expr::Computed(is_b.clone());
            let found = evaluate(&condition, &records(values, keys)).expect("an answer");
            assert_eq!(found.as_boolean(), &BooleanArray::from(expected.clone()), "{values:?}");
            assert_eq!(is_b.rows.load(Ordering::Relaxed), rows, "{values:?}");
        }
        let failing = records(&["a", "b", "x"], keys);
        assert!(evaluate(&Expr::Computed(Arc::new(IsB::default())), &failing).is_err());
    }
}
