//! Pairs of the rows of groups.

use millstream_contract::plan::{self, PairSide, Project};

use super::Assembler;
use crate::names::views::{Pairs, View};
use crate::stages::lower::FIRED;
use crate::stages::schemas::{output_schema, qualified};
use crate::syntax::prelude::*;

impl Assembler<'_> {
    /// The sides of pairs of `rows`, and the columns of pairs.
    pub(super) fn pairs(
        &self,
        pairs: &Pairs,
        rows: Arc<DFSchema>,
    ) -> Result<(Option<Box<plan::Pairs>>, DFSchema)> {
        let side = |view: &View| -> Result<PairSide> {
            let filters = view.having.iter().map(|e| self.compiler.simple_filter(e, &rows));
            let filters = filters.collect::<Result<Vec<_>>>()?;
            let names: Vec<String> = view.needed().map(|column| column.name.clone()).collect();
            let columns = view.needed().map(|column| self.compiler.simple(&column.expr, &rows));
            let columns = columns.collect::<Result<Vec<_>>>()?;
            let schema = output_schema(&columns, &rows, &names)?;
            let columns = self.compiler.compile_all(&columns, &rows)?;
            let filter = self.compiler.compile_filter(&filters, &rows)?;
            Ok(PairSide { filter, project: Project { columns, schema } })
        };
        let [left, right] = pairs.sides.each_ref().map(side);
        let sides = [left?, right?];
        let fields = sides.iter().flat_map(|side| side.project.schema.fields());
        let fired = Schema::new(fields.cloned().collect::<Vec<_>>());
        let records = Arc::new(rows.as_arrow().clone());
        Ok((Some(Box::new(plan::Pairs { records, sides })), qualified(FIRED, fired)?))
    }
}
