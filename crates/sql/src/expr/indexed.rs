//! A schema whose columns are found by their names: DataFusion's own looks at one after the other,
//! which takes seconds for the columns of a wide table.

use crate::syntax::prelude::*;

use std::ops::Deref;

use datafusion_common::ExprSchema;

/// The columns of a plan or of a stage's input.
#[derive(Debug)]
pub(crate) struct Indexed {
    schema: DFSchema,
    /// The first column of each name.
    first: HashMap<String, usize>,
}

impl Indexed {
    pub(crate) fn new(schema: DFSchema) -> Indexed {
        let mut first = HashMap::new();
        for (i, field) in schema.fields().iter().enumerate() {
            first.entry(field.name().clone()).or_insert(i);
        }
        Indexed { schema, first }
    }

    pub(crate) fn index_of(&self, column: &Column) -> DfResult<usize> {
        let first = self.first.get(&column.name).copied();
        let own = |i: &usize| self.schema.qualified_field(*i).0 == column.relation.as_ref();
        match first.filter(own) {
            Some(i) => Ok(i),
            None => self.schema.index_of_column(column),
        }
    }
}

impl Deref for Indexed {
    type Target = DFSchema;

    fn deref(&self) -> &DFSchema {
        &self.schema
    }
}

impl ExprSchema for Indexed {
    fn field_from_column(&self, column: &Column) -> DfResult<&FieldRef> {
        Ok(&self.schema.fields()[self.index_of(column)?])
    }
}
