//! The columns of a batch that expressions read. Selected rows are copied for an expression. Of a
//! row with many fields, and of a wide batch, only the read fields and columns are worth a copy.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, NullArray, RecordBatch, RecordBatchOptions, StructArray,
};
use arrow::datatypes::{Field, Fields, Schema};

use crate::error::Result;

/// Columns, and fields of rows, that expressions read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Reads {
    columns: BTreeMap<usize, Read>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Read {
    Whole,
    /// Some fields, by their names.
    Fields(BTreeMap<String, Read>),
}

impl Reads {
    /// Adds a column.
    pub fn add_column(&mut self, column: usize) {
        self.columns.insert(column, Read::Whole);
    }

    /// Adds a field of a column. The path has the names of the rows around the field, then the
    /// field's name.
    pub fn add_field(&mut self, column: usize, path: &[&str]) {
        let none = || Read::Fields(BTreeMap::new());
        let mut read = self.columns.entry(column).or_insert_with(none);
        for (at, name) in path.iter().enumerate() {
            let Read::Fields(fields) = read else { return };
            read = fields.entry(name.to_string()).or_insert_with(none);
            if at + 1 == path.len() {
                *read = Read::Whole;
            }
        }
    }

    /// Whether fields are read, and not only whole columns.
    pub fn has_fields(&self) -> bool {
        self.columns.values().any(|read| *read != Read::Whole)
    }

    /// Adds the columns and fields of other reads.
    pub fn add_all(&mut self, others: &Reads) {
        for (column, read) in &others.columns {
            match self.columns.get_mut(column) {
                Some(own) => own.add(read),
                None => {
                    self.columns.insert(*column, read.clone());
                }
            }
        }
    }

    /// The batch without unread fields, and with NULL in place of unread columns. The engine's own
    /// columns stay; their names begin with `$`. Copies no values.
    pub fn of(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let is_whole = |column: usize| self.columns.get(&column) == Some(&Read::Whole);
        if (0..batch.num_columns()).all(is_whole) {
            return Ok(batch.clone());
        }
        let mut fields = Vec::with_capacity(batch.num_columns());
        let mut columns = Vec::with_capacity(batch.num_columns());
        for (at, (field, array)) in
            batch.schema_ref().fields().iter().zip(batch.columns()).enumerate()
        {
            let array = match self.columns.get(&at) {
                Some(read) => read.of(array)?,
                None if field.name().starts_with('$') => array.clone(),
                None => Arc::new(NullArray::new(array.len())),
            };
            fields.push(match array.data_type() == field.data_type() {
                true => field.clone(),
                false => Arc::new(Field::new(field.name(), array.data_type().clone(), true)),
            });
            columns.push(array);
        }
        let schema = Arc::new(Schema::new(fields));
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        Ok(RecordBatch::try_new_with_options(schema, columns, &options)?)
    }
}

impl Read {
    fn add(&mut self, other: &Read) {
        match (&mut *self, other) {
            (Read::Fields(own), Read::Fields(others)) => {
                for (name, read) in others {
                    match own.get_mut(name) {
                        Some(own) => own.add(read),
                        None => {
                            own.insert(name.clone(), read.clone());
                        }
                    }
                }
            }
            _ => *self = Read::Whole,
        }
    }

    fn of(&self, array: &ArrayRef) -> Result<ArrayRef> {
        let (Read::Fields(read), Some(row)) = (self, array.as_struct_opt()) else {
            return Ok(array.clone());
        };
        let mut fields = Vec::with_capacity(read.len());
        let mut columns = Vec::with_capacity(read.len());
        for (field, array) in row.fields().iter().zip(row.columns()) {
            let Some(read) = read.get(field.name()) else { continue };
            let array = read.of(array)?;
            let data_type = array.data_type().clone();
            fields.push(field.as_ref().clone().with_data_type(data_type));
            columns.push(array);
        }
        let (fields, nulls) = (Fields::from(fields), row.nulls().cloned());
        Ok(Arc::new(StructArray::try_new_with_length(fields, columns, nulls, row.len())?))
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{BooleanArray, Int64Array, StringArray};
    use arrow::buffer::NullBuffer;
    use arrow::compute::filter_record_batch;
    use arrow::datatypes::DataType;

    use super::*;

    /// A row of rows beside two columns, and the engine's own column.
    fn batch() -> RecordBatch {
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3]));
        let texts: ArrayRef = Arc::new(StringArray::from(vec![Some("a"), None, Some("c")]));
        let field = |name: &str, of: &ArrayRef| Field::new(name, of.data_type().clone(), true);
        let inner = Fields::from(vec![field("n", &numbers), field("t", &texts)]);
        let nulls = Some(NullBuffer::from(vec![true, true, false]));
        let inner: ArrayRef =
            Arc::new(StructArray::new(inner, vec![numbers.clone(), texts.clone()], nulls));
        let outer = Fields::from(vec![field("inner", &inner), field("t", &texts)]);
        let outer: ArrayRef = Arc::new(StructArray::new(outer, vec![inner, texts.clone()], None));
        let columns = [("row", outer), ("n", numbers.clone()), ("t", texts), ("$time", numbers)];
        RecordBatch::try_from_iter(columns).expect("columns of one length")
    }

    #[test]
    fn only_what_is_read_is_left() {
        let batch = batch();
        let mut reads = Reads::default();
        reads.add_field(0, &["inner", "n"]);
        let mut more = Reads::default();
        more.add_column(2);
        reads.add_all(&more);
        let left = reads.of(&batch).unwrap();
        assert_eq!((left.num_rows(), left.num_columns()), (3, 4));
        assert_eq!(left.column(1).data_type(), &DataType::Null);
        assert_eq!((left.column(2), left.column(3)), (batch.column(2), batch.column(3)));
        let [outer, own_outer] = [&batch, &left].map(|batch| batch.column(0).as_struct());
        assert_eq!(own_outer.column_names(), ["inner"]);
        let [inner, own_inner] = [outer, own_outer].map(|row| row.column(0).as_struct());
        assert_eq!((own_inner.column_names(), own_inner.nulls()), (vec!["n"], inner.nulls()));
        assert_eq!(own_inner.column(0), inner.column(0));
        let some = BooleanArray::from(vec![false, true, true]);
        let some = filter_record_batch(&left, &some).unwrap();
        assert_eq!((some.num_rows(), some.column(1).len()), (2, 2));
        // A field of a column that is read as a whole adds nothing, and the other way round.
        reads.add_column(0);
        reads.add_field(0, &["t"]);
        assert_eq!(reads.of(&batch).unwrap().column(0), batch.column(0));
        let mut fields = Reads::default();
        fields.add_field(0, &["t"]);
        fields.add_field(0, &["inner", "t"]);
        fields.add_field(0, &["inner"]);
        assert_eq!(fields.of(&batch).unwrap().column(0), batch.column(0));
    }
}
