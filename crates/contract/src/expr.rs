//! Columnar expressions as the engine sees them: a column of the input, or a computed one.

use std::fmt;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::DataType;

use crate::error::{Error, Result};
use crate::pruning::AnyOf;
use crate::reads::Reads;

/// A column of numbers, of which each row of a job has another ([`Evaluate::row_numbers`]).
pub const ROW_NUMBERS: &str = "$row";

/// Computes one column from a batch. Implemented by the SQL crate.
pub trait Evaluate: Send + Sync + fmt::Debug + fmt::Display {
    /// One value per row of `batch`.
    fn evaluate(&self, batch: &RecordBatch) -> Result<ArrayRef>;
    /// The type of the column that comes out.
    fn data_type(&self) -> &DataType;
    /// Comparisons that hold on each row for which a condition is TRUE; the condition fails on no
    /// row.
    fn implies(&self) -> Vec<AnyOf> {
        Vec::new()
    }
    /// Parts of a conjunction: conditions that are all TRUE wherever the whole is. Empty for a
    /// condition without parts.
    fn conjuncts(&self) -> Vec<Arc<dyn Evaluate>> {
        Vec::new()
    }
    /// The columns of `batch` that are looked at; `None` if it does not say.
    fn columns(&self) -> Option<Vec<usize>> {
        None
    }
    /// The columns and fields of `batch` that are looked at; `None` if it does not say.
    fn reads(&self) -> Option<Reads> {
        let mut reads = Reads::default();
        self.columns()?.into_iter().for_each(|column| reads.add_column(column));
        Some(reads)
    }
    /// The place where a condition wants [`ROW_NUMBERS`], behind the columns of `batch`. Values of
    /// the condition are then known to computed columns. `None`: nowhere.
    fn row_numbers(&self) -> Option<usize> {
        None
    }
    /// Whether it gives what is there already, such as a field of a row: it can fail for no row,
    /// makes no texts, and costs so little that it may be evaluated for rows that nobody asks for.
    fn is_there(&self) -> bool {
        false
    }
}

/// A column of the input batch, by position, or a computed one.
#[derive(Debug, Clone)]
pub enum Expr {
    /// The input's column at this index, as it is.
    Column(usize),
    /// Anything else.
    Computed(Arc<dyn Evaluate>),
}

impl Expr {
    /// The column for `batch`; a plain column is only reference-counted, never copied.
    pub fn evaluate(&self, batch: &RecordBatch) -> Result<ArrayRef> {
        match self {
            Expr::Column(index) => Ok(batch.column(*index).clone()),
            Expr::Computed(expr) => {
                let column = expr.evaluate(batch)?;
                let (values, rows) = (column.len(), batch.num_rows());
                if values != rows {
                    let message = format!("{expr} has {values} values for {rows} rows");
                    return Err(Error::Internal(message));
                }
                Ok(column)
            }
        }
    }

    /// The columns of the input that are looked at; `None` if it does not say.
    pub fn columns(&self) -> Option<Vec<usize>> {
        match self {
            Expr::Column(column) => Some(vec![*column]),
            Expr::Computed(computed) => computed.columns(),
        }
    }

    /// The columns and fields that some expressions look at; `None` if one does not say.
    pub fn reads<'e>(exprs: impl IntoIterator<Item = &'e Expr>) -> Option<Reads> {
        let mut all = Reads::default();
        for expr in exprs {
            match expr {
                Expr::Column(column) => all.add_column(*column),
                Expr::Computed(computed) => all.add_all(&computed.reads()?),
            }
        }
        Some(all)
    }

    /// Whether this is a column, or gives what is there already.
    pub fn is_there(&self) -> bool {
        match self {
            Expr::Column(_) => true,
            Expr::Computed(computed) => computed.is_there(),
        }
    }

    /// Whether this is a column as it is.
    pub fn is_column(&self) -> bool {
        matches!(self, Expr::Column(_))
    }
}
