//! Open windows: those that have begun and not fired, counted for the report of a job that ends
//! early.

use std::collections::BTreeSet;

use super::Worker;
use millstream_operators::event_time::{BEGINNING, END};

impl Worker {
    /// Start and end of the windows of outputs for which this worker has rows, or has received
    /// rows, in their stages or in earlier stages. Rows on their way to another process may be
    /// missing.
    pub(crate) fn open_windows(&self) -> BTreeSet<(i64, i64)> {
        let (shared, mut windows) = (&self.context.shared, BTreeSet::new());
        for state in &self.stages {
            let (stage, operator) = (state.stage.number, &state.operator);
            let slices = operator.open().into_iter();
            slices.for_each(|slice| {
                shared.windows_of(stage, slice, state.frontier, &mut windows);
            });
            // What is kept of slices that have fired, such as sessions that go on, fires next.
            let next = operator.complete(state.frontier, END);
            let firing = operator.firing().map(|firing| firing.window);
            for window in firing.into_iter().chain(next) {
                shared.note_open(stage, window, &mut windows);
            }
        }
        self.delivery.on_the_way(&self.context, &mut |stage, slice| {
            shared.windows_of(stage, slice, BEGINNING, &mut windows);
        });
        windows
    }
}
