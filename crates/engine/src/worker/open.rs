//! Open windows: those that have begun and not fired, counted for the report of a job that ends
//! early.

use std::collections::BTreeSet;

use super::{Message, Worker};

impl Worker {
    /// Where windows of the last stage begin for which this worker has rows, of that stage or of
    /// one before, or has been sent some. What is on its way to another process may be missing.
    pub(crate) fn open_windows(&self) -> BTreeSet<i64> {
        let mut starts = BTreeSet::new();
        let last = |stage: usize, slice: i64| self.shared.last_window_of(stage, slice);
        for state in &self.stages {
            let firing = state.firing.as_ref().map(|fire| fire.start);
            let open = state.slices.open().chain(firing);
            starts.extend(open.map(|slice| last(state.stage.number, slice)));
        }
        let mut note = |message: &Message| {
            if let Message::Delta(delta) = message {
                starts.extend(delta.starts().map(|slice| last(delta.stage(), slice)));
            }
        };
        self.inbox.iter().for_each(&mut note);
        self.shared.mailboxes[self.id].look(note);
        starts
    }
}
