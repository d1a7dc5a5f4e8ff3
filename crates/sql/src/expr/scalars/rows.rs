//! Functions of strings and integers that are computed row by row.

use crate::expr::udf::{called, listed, no_such};
use crate::syntax::prelude::*;

use std::fmt::Write;

use arrow::array::StringBuilder;
use arrow::buffer::NullBuffer;

/// A text.
pub(super) const TEXT: DataType = DataType::Utf8;
/// A whole number.
pub(super) const NUMBER: DataType = DataType::Int64;

/// Computes a function over the arguments of a batch.
pub(super) type Batch = fn(&Arguments) -> DfResult<ArrayRef>;

/// A function with its name, the forms of its arguments, and its result type.
pub(super) fn function(
    name: &'static str,
    aliases: &[&str],
    forms: &[&[DataType]],
    returns: DataType,
    batch: Batch,
) -> ScalarUDF {
    let forms = forms.iter().map(|form| form.to_vec()).collect();
    let aliases = aliases.iter().map(|alias| alias.to_string()).collect();
    ScalarUDF::from(RowFunction { name, aliases, forms, returns, batch: Called(batch) })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct RowFunction {
    name: &'static str,
    aliases: Vec<String>,
    forms: Vec<Vec<DataType>>,
    returns: DataType,
    batch: Called,
}

/// All functions of a name are the same.
#[derive(Debug, Clone, Copy)]
struct Called(Batch);

impl PartialEq for Called {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Called {}

impl std::hash::Hash for Called {
    fn hash<H: std::hash::Hasher>(&self, _: &mut H) {}
}

impl ScalarUDFImpl for RowFunction {
    called!(.name, CHECKED);

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    /// Keeps numbers and texts apart: DataFusion would cast a number to a text, or a text to a
    /// number.
    fn coerce_types(&self, types: &[DataType]) -> DfResult<Vec<DataType>> {
        let goes = |(given, wanted): (&DataType, &DataType)| match *wanted {
            NUMBER => given.is_null() || given.is_integer(),
            _ => given.is_null() || given.is_string(),
        };
        let fits = |form: &&Vec<DataType>| {
            form.len() == types.len() && types.iter().zip(form.iter()).all(goes)
        };
        if let Some(form) = self.forms.iter().find(fits) {
            return Ok(form.clone());
        }
        let name = self.name.trim_start_matches('$').to_uppercase();
        let forms: Vec<String> =
            self.forms.iter().map(|form| format!("{name}({})", listed(form))).collect();
        no_such(&name, types, &forms.join(" or "))
    }

    fn return_type(&self, _: &[DataType]) -> DfResult<DataType> {
        Ok(self.returns.clone())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let arguments = Arguments::new(&args)?;
        let array = (self.batch.0)(&arguments)?;
        match arguments.constant() {
            true => Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&array, 0)?)),
            false => Ok(ColumnarValue::Array(array)),
        }
    }
}

/// The arguments of a batch.
pub(super) struct Arguments {
    columns: Vec<ArgumentColumn>,
    rows: usize,
    /// Rows with a NULL argument; `None`: no row has one.
    nulls: Option<NullBuffer>,
}

struct ArgumentColumn {
    values: ArgumentValues,
    constant: bool,
}

enum ArgumentValues {
    Texts(StringArray),
    Numbers(Int64Array),
}

impl ArgumentColumn {
    /// Rows that are NULL, of so many; `None`: none.
    fn nulls(&self, rows: usize) -> Option<NullBuffer> {
        let nulls = match &self.values {
            ArgumentValues::Texts(texts) => texts.nulls(),
            ArgumentValues::Numbers(numbers) => numbers.nulls(),
        };
        match (nulls?, self.constant) {
            (nulls, true) => nulls.is_null(0).then(|| NullBuffer::new_null(rows)),
            (nulls, false) => Some(nulls.clone()),
        }
    }
}

impl Arguments {
    fn new(args: &ScalarFunctionArgs) -> DfResult<Arguments> {
        let column = |arg: &ColumnarValue| {
            let (array, constant) = match arg {
                ColumnarValue::Array(array) => (array.clone(), false),
                ColumnarValue::Scalar(value) => (value.to_array()?, true),
            };
            let values = match array.data_type() {
                DataType::Int64 => ArgumentValues::Numbers(array.as_primitive().clone()),
                _ => ArgumentValues::Texts(cast(&array, &DataType::Utf8)?.as_string().clone()),
            };
            Ok(ArgumentColumn { values, constant })
        };
        let columns = args.args.iter().map(column).collect::<DfResult<Vec<_>>>()?;
        let constant = columns.iter().all(|column| column.constant);
        let rows = if constant { 1 } else { args.number_rows };
        let nulls = columns.iter().fold(None, |all: Option<NullBuffer>, column| {
            NullBuffer::union(all.as_ref(), column.nulls(rows).as_ref())
        });
        let nulls = nulls.filter(|nulls| nulls.null_count() > 0);
        Ok(Arguments { columns, rows, nulls })
    }

    fn constant(&self) -> bool {
        self.columns.iter().all(|column| column.constant)
    }

    /// The number of arguments.
    pub(super) fn count(&self) -> usize {
        self.columns.len()
    }

    #[inline]
    fn column(&self, i: usize, row: usize) -> (&ArgumentValues, usize) {
        let column = &self.columns[i];
        (&column.values, if column.constant { 0 } else { row })
    }

    #[inline]
    fn any_null(&self, row: usize) -> bool {
        self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row))
    }

    /// An argument that is a text.
    #[inline]
    pub(super) fn text(&self, i: usize, row: usize) -> DfResult<&str> {
        match self.column(i, row) {
            (ArgumentValues::Texts(texts), row) => Ok(texts.value(row)),
            (ArgumentValues::Numbers(_), _) => exec_err!("a number where a text belongs"),
        }
    }

    /// An argument that is a number.
    #[inline]
    pub(super) fn number(&self, i: usize, row: usize) -> DfResult<i64> {
        match self.column(i, row) {
            (ArgumentValues::Numbers(numbers), row) => Ok(numbers.value(row)),
            (ArgumentValues::Texts(_), _) => exec_err!("a text where a number belongs"),
        }
    }

    /// Whether an argument is a number.
    pub(super) fn is_number(&self, i: usize) -> bool {
        matches!(self.columns[i].values, ArgumentValues::Numbers(_))
    }

    /// Values of the rows without NULL among their arguments.
    pub(super) fn rows<T>(
        &self,
        mut of: impl FnMut(usize) -> DfResult<Option<T>>,
    ) -> impl Iterator<Item = DfResult<Option<T>>> {
        (0..self.rows).map(move |row| if self.any_null(row) { Ok(None) } else { of(row) })
    }

    /// Texts that `write` appends to the given builder; `None` is NULL.
    pub(super) fn texts(
        &self,
        mut write: impl FnMut(usize, &mut StringBuilder) -> DfResult<Option<()>>,
    ) -> DfResult<ArrayRef> {
        let mut texts = StringBuilder::with_capacity(self.rows, 0);
        for row in 0..self.rows {
            let written = if self.any_null(row) { None } else { write(row, &mut texts)? };
            match written {
                Some(()) => texts.append_value(""),
                None => texts.append_null(),
            }
        }
        Ok(Arc::new(texts.finish()))
    }

    /// Texts that are parts of arguments.
    pub(super) fn parts<'a>(
        &'a self,
        mut part: impl FnMut(usize) -> DfResult<Option<&'a str>>,
    ) -> DfResult<ArrayRef> {
        let mut texts = StringBuilder::with_capacity(self.rows, 0);
        for row in 0..self.rows {
            texts.append_option(if self.any_null(row) { None } else { part(row)? });
        }
        Ok(Arc::new(texts.finish()))
    }
}

/// Appends to a text that is being written.
pub(super) fn push(texts: &mut StringBuilder, text: &str) {
    // Writing to memory does not fail.
    let _ = texts.write_str(text);
}
