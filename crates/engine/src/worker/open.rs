//! Open windows: those that have begun and not fired, counted for the report of a job that ends
//! early.

use std::collections::BTreeSet;

use super::Worker;

impl Worker {
    /// Start and end of the windows of outputs for which this worker has rows, of their stages or
    /// of ones before, or has been sent some. What is on its way to another process may be missing.
    pub(crate) fn open_windows(&self) -> BTreeSet<(i64, i64)> {
        let (shared, mut windows) = (&self.context.shared, BTreeSet::new());
        for state in &self.stages {
            let (stage, (slices, firing)) = (state.stage.number, state.operator.open());
            slices.into_iter().for_each(|slice| shared.windows_of(stage, slice, &mut windows));
            if let Some(window) = firing {
                shared.note_open(stage, window, &mut windows);
            }
        }
        self.delivery.on_the_way(&self.context, &mut |stage, slice| {
            shared.windows_of(stage, slice, &mut windows);
        });
        windows
    }
}
