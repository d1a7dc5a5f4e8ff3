//! Open windows: those that have begun and not fired, counted for the report of a job that ends
//! early.

use std::collections::BTreeSet;

use super::{Message, Worker};

impl Worker {
    /// Where windows of outputs begin for which this worker has rows, of their stages or of ones
    /// before, or has been sent some. What is on its way to another process may be missing.
    pub(crate) fn open_windows(&self) -> BTreeSet<i64> {
        let mut starts = BTreeSet::new();
        for state in &self.stages {
            let firing = state.firing.as_ref().map(|fire| fire.start);
            for slice in state.slices.open().chain(firing) {
                self.shared.windows_of(state.stage.number, slice, &mut starts);
            }
        }
        let mut note = |message: &Message| {
            if let Message::Delta(delta) = message {
                for slice in delta.starts() {
                    self.shared.windows_of(delta.stage(), slice, &mut starts);
                }
            }
        };
        self.inbox.iter().for_each(&mut note);
        self.shared.mailboxes[self.id].look(note);
        starts
    }
}
