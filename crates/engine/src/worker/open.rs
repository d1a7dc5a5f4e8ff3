//! Open windows: those that have begun and not fired, counted for the report of a job that ends
//! early.

use std::collections::BTreeSet;

use super::Worker;

impl Worker {
    /// Where windows of outputs begin for which this worker has rows, of their stages or of ones
    /// before, or has been sent some. What is on its way to another process may be missing.
    pub(crate) fn open_windows(&self) -> BTreeSet<i64> {
        let mut starts = BTreeSet::new();
        for state in &self.stages {
            for slice in state.operator.open() {
                self.context.shared.windows_of(state.stage.number, slice, &mut starts);
            }
        }
        self.delivery.on_the_way(&self.context, &mut |stage, slice| {
            self.context.shared.windows_of(stage, slice, &mut starts);
        });
        starts
    }
}
