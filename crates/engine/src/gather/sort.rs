//! The final sort: rows of a result with an order of its own, in sorted runs until all are there.

use std::mem;

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;

use super::Gather;
use crate::error::Result;
use crate::order::{Order, Run};
use crate::plan::Sort;
use millstream_operators::budget::{Kind, batch_bytes};

/// Rows that are kept at least, beside those of a LIMIT, before they are cut.
const CUT_ROWS: usize = 1 << 16;
/// Bytes of rows that are cut at most: texts of a column must fit into one array.
const CUT_BYTES: usize = 1 << 30;

/// The first rows of a result that can count, OFFSET included.
fn most(sort: &Sort) -> usize {
    sort.limit.map_or(usize::MAX, |limit| limit.saturating_add(sort.offset) as usize)
}

impl Gather {
    pub(super) fn order(&self) -> Result<&Order> {
        if let Some(order) = self.order.get() {
            return Ok(order);
        }
        let (schema, keys) = self.output.ordered_by();
        let order = Order::new(&schema, &keys)?;
        Ok(self.order.get_or_init(|| order))
    }

    /// The first rows that the result may need.
    fn most(&self) -> usize {
        self.output.sort.as_ref().map_or(usize::MAX, most)
    }

    /// The rows of a batch in order, as many of them as the result may need.
    pub(super) fn sorted(&self, rows: RecordBatch) -> Result<RecordBatch> {
        self.order()?.sorted(rows, self.most())
    }

    pub(super) fn held(&self, rows: RecordBatch) -> Run {
        let held = self.budget.hold(Kind::Output, batch_bytes(&rows));
        Run { rows, held }
    }

    /// Keeps a run until all runs are there. For a result with a LIMIT, the worker that finds a
    /// pile of rows cuts the earlier runs, while other workers go on.
    pub(super) fn hold_to_sort(&self, run: Run) -> Result<()> {
        if run.rows.num_rows() == 0 {
            return Ok(());
        }
        let mut state = self.lock();
        if self.has_ended() {
            return Ok(());
        }
        let runs = &mut state.sorted;
        runs.push(run);
        let most = self.most();
        let rows: usize = runs.iter().map(|run| run.rows.num_rows()).sum();
        let bytes: usize = runs.iter().map(|run| run.held.bytes()).sum();
        if most > CUT_ROWS || rows < 2 * most + CUT_ROWS || bytes > CUT_BYTES {
            return Ok(());
        }
        let runs = mem::take(runs);
        drop(state);
        let all = concat_batches(&runs[0].rows.schema(), runs.iter().map(|run| &run.rows))?;
        let cut = self.held(self.sorted(all)?);
        drop(runs);
        let mut state = self.lock();
        if !self.has_ended() {
            state.sorted.push(cut);
        }
        Ok(())
    }
}
