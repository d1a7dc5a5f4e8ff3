//! A lookup's stage.

use millstream_contract::plan::{Input, Lookup, Operator, Project, Stage};

use super::Assembler;
use crate::names::catalog::{INPUT, add_columns};
use crate::stages::schemas::{output_schema, qualified};
use crate::stages::{graph::LookedUp, scan::Needs};
use crate::syntax::prelude::*;

impl Assembler<'_> {
    /// The stage of a lookup for rows of `inputs`, which show columns of the schema `own`.
    pub(super) fn lookup(
        &self,
        lookup: &LookedUp,
        inputs: Vec<Input>,
        own: &DFSchema,
    ) -> Result<Stage> {
        let body = &lookup.body;
        let mut used = BTreeSet::new();
        body.filters.iter().chain(&body.columns).for_each(|expr| add_columns(expr, &mut used));
        let mut needs = Needs::default();
        needs.also(used.into_iter());
        let side = needs.read_side(&self.compiler, lookup)?;
        let read = qualified(INPUT, side.schema.as_ref().clone())?;
        let shown = output_schema(&body.columns, &read, &lookup.shown)?;
        let columns = Project {
            columns: self.compiler.compile_all(&body.columns, &read)?,
            schema: shown.clone(),
        };
        let schemas = [Arc::new(own.clone()), Arc::new(qualified(INPUT, shown.as_ref().clone())?)];
        let keys = self.keys_of_join(&body.keys, &schemas)?;
        let fields = own.fields().iter().chain(shown.fields()).cloned();
        let pair = Arc::new(qualified(INPUT, Schema::new(fields.collect::<Vec<_>>()))?);
        let condition = body.condition.iter().map(|e| self.compiler.simple_filter(e, &pair));
        let condition = condition.collect::<Result<Vec<_>>>()?;
        let number = |name: &String| {
            let number = pair.fields().iter().position(|field| field.name() == name);
            number.ok_or_else(|| SqlError::internal(format!("a lookup without '{name}'")))
        };
        let output = lookup.output.iter().map(number).collect::<Result<Vec<_>>>()?;
        let own_columns = own.fields().len();
        let field = |column: &usize| -> Field {
            let field = pair.field(*column).as_ref().clone();
            let nullable = field.is_nullable() || (body.outer && *column >= own_columns);
            field.with_nullable(nullable)
        };
        let given = Arc::new(Schema::new(output.iter().map(field).collect::<Vec<_>>()));
        let lookup = Lookup {
            name: body.entry.name.clone(),
            side,
            filter: self.compiler.compile_filter(&body.filters, &read)?,
            columns,
            outer: body.outer,
            keys,
            nulls_are_equal: body.nulls_are_equal,
            condition: self.compiler.compile_filter(&condition, &pair)?,
            pair: Arc::new(pair.as_arrow().clone()),
            output,
        };
        let operator = Operator::Lookup(Arc::new(lookup));
        Ok(Stage { names: vec![], inputs, operator, output: given })
    }
}
