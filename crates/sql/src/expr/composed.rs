//! Compiled expressions of our own over others, their parts: DataFusion's view of them, once for
//! all.

use crate::syntax::prelude::*;

/// An expression of which `how` puts the values of its parts together.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Composed<C> {
    pub(crate) how: C,
    /// At least one.
    pub(crate) parts: Parts,
}

pub(crate) type Parts = Vec<Arc<dyn PhysicalExpr>>;

/// How the values of parts are put together.
pub(crate) trait Compose: fmt::Debug + Clone + Eq + Hash + Send + Sync + 'static {
    fn data_type(&self, parts: &Parts, schema: &Schema) -> DfResult<DataType> {
        parts[0].data_type(schema)
    }

    fn nullable(&self, parts: &Parts, schema: &Schema) -> DfResult<bool> {
        parts.iter().try_fold(false, |any, part| Ok(any || part.nullable(schema)?))
    }

    fn evaluate(&self, parts: &Parts, batch: &RecordBatch) -> DfResult<ColumnarValue>;

    /// Writes the expression for messages; most are not seen.
    fn write(&self, parts: &Parts, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", parts[0])
    }

    /// The expression over some parts. DataFusion's CASE numbers the columns of its parts anew, and
    /// so makes other parts.
    fn over(self, parts: Parts) -> Arc<dyn PhysicalExpr> {
        Arc::new(Composed { how: self, parts })
    }
}

impl<C: Compose> fmt::Display for Composed<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.how.write(&self.parts, f)
    }
}

impl<C: Compose> PhysicalExpr for Composed<C> {
    fn data_type(&self, schema: &Schema) -> DfResult<DataType> {
        self.how.data_type(&self.parts, schema)
    }

    fn nullable(&self, schema: &Schema) -> DfResult<bool> {
        self.how.nullable(&self.parts, schema)
    }

    fn return_field(&self, schema: &Schema) -> DfResult<FieldRef> {
        Ok(Arc::new(Field::new("", self.data_type(schema)?, self.nullable(schema)?)))
    }

    fn evaluate(&self, batch: &RecordBatch) -> DfResult<ColumnarValue> {
        self.how.evaluate(&self.parts, batch)
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        self.parts.iter().collect()
    }

    fn with_new_children(self: Arc<Self>, parts: Parts) -> DfResult<Arc<dyn PhysicalExpr>> {
        if parts.len() != self.parts.len() {
            return internal_err!("{self} keeps its number of parts");
        }
        Ok(self.how.clone().over(parts))
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
