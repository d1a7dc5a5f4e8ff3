//! An UNNEST's or a lookup's stage, over results.

use millstream_contract::plan::{self, Operator, Plan, Stage};

use super::Assembler;
use crate::names::catalog::input_column;
use crate::stages::graph::{self, Elements, Graph, Makes};
use crate::stages::schemas::elements_schema;
use crate::syntax::prelude::*;

impl Assembler<'_> {
    pub(super) fn expanding(
        &self,
        graph: &Graph,
        operator: &graph::Operator,
        makes: &Makes,
        plan: &Plan,
    ) -> Result<Stage> {
        let [side] = &operator.sides[..] else {
            return Err(SqlError::internal("an UNNEST or a lookup of several sides"));
        };
        let used = |name: &&String| side.used.contains(*name);
        let names: Vec<String> = side.names.iter().filter(used).cloned().collect();
        let columns: Vec<Expr> = names.iter().map(|name| input_column(name)).collect();
        let mut takings = Vec::new();
        for part in &side.parts {
            let mut taking = self.taking(graph, part, plan, &side.used, &side.filters)?;
            taking.columns.get_or_insert_with(|| columns.clone());
            takings.push(taking);
        }
        let (inputs, own) = self.inputs(takings, &names)?;
        match makes {
            Makes::Lookup(lookup) => self.lookup(lookup, inputs, &own),
            Makes::Elements(Elements { outer, shown }) => {
                let kept = &names[..names.len().saturating_sub(1)];
                let schema = elements_schema(&columns, &own, kept, shown, *outer)?;
                let elements = shown.iter().map(|(_, element)| *element).collect();
                let operator = Operator::Unnest(plan::Unnest { outer: *outer, elements });
                let output = Arc::new(schema.as_arrow().clone());
                Ok(Stage { names: vec![], inputs, operator, output })
            }
        }
    }
}
