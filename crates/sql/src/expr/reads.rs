//! The columns and the fields of rows that a compiled expression reads.

use datafusion_physical_expr::ScalarFunctionExpr;
use datafusion_physical_expr::expressions::{Column as PhysicalColumn, Literal};
use millstream_contract::reads::Reads;

use crate::expr::composed::{Compose, Composed, Parts};
use crate::syntax::prelude::*;
use crate::syntax::subscripts::FIELD;

/// The columns and fields that an expression reads.
pub(crate) fn reads_of(expr: &Arc<dyn PhysicalExpr>) -> Reads {
    let mut reads = Reads::default();
    add_reads(expr, &mut reads);
    reads
}

fn add_reads(expr: &Arc<dyn PhysicalExpr>, reads: &mut Reads) {
    let mut path = Vec::new();
    match field_of(expr, &mut path) {
        Some(column) if path.is_empty() => reads.add_column(column),
        Some(column) => reads.add_field(column, &path),
        None => expr.children().into_iter().for_each(|part| add_reads(part, reads)),
    }
}

/// The column that an expression is, or is a field of, with the field's names.
fn field_of<'e>(expr: &'e Arc<dyn PhysicalExpr>, path: &mut Vec<&'e str>) -> Option<usize> {
    if let Some(column) = expr.downcast_ref::<PhysicalColumn>() {
        return Some(column.index());
    }
    let call = expr.downcast_ref::<ScalarFunctionExpr>().filter(|call| call.name() == FIELD)?;
    let [row, name] = call.args() else { return None };
    let column = field_of(row, path)?;
    path.push(name.downcast_ref::<Literal>()?.value().try_as_str()??);
    Some(column)
}

/// An expression that copies rows for its parts, evaluated over a batch of the read fields.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct Selecting {
    reads: Reads,
}

impl Selecting {
    /// The expression over such a batch; `None` if it reads no fields.
    pub(crate) fn of_fields(expr: &Arc<dyn PhysicalExpr>) -> Option<Arc<dyn PhysicalExpr>> {
        let reads = reads_of(expr);
        reads.has_fields().then(|| Selecting::default().over(vec![expr.clone()]))
    }
}

impl Compose for Selecting {
    fn over(self, parts: Parts) -> Arc<dyn PhysicalExpr> {
        let reads = reads_of(&parts[0]);
        Arc::new(Composed { how: Selecting { reads }, parts })
    }

    fn evaluate(&self, parts: &Parts, batch: &RecordBatch) -> DfResult<ColumnarValue> {
        parts[0].evaluate(&read(&self.reads, batch)?)
    }
}

/// A batch of the read columns and fields.
pub(crate) fn read(reads: &Reads, batch: &RecordBatch) -> DfResult<RecordBatch> {
    reads.of(batch).map_err(|error| DataFusionError::External(Box::new(error)))
}
