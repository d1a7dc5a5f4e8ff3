//! What has begun and not fired: what a job that ends early tells of its windows.

use std::collections::BTreeSet;

use super::{Message, Worker};

impl Worker {
    /// Where slices begin of which this worker has rows, or has been sent some. What is on its way
    /// to another process may be missing.
    pub(crate) fn open_slices(&self) -> BTreeSet<i64> {
        let mut starts = BTreeSet::new();
        if let Some(state) = &self.state {
            starts.extend(state.slices.open());
            starts.extend(state.firing.as_ref().map(|fire| fire.start));
        }
        let mut note = |message: &Message| {
            if let Message::Delta(delta) = message {
                starts.extend(delta.starts());
            }
        };
        self.inbox.iter().for_each(&mut note);
        self.shared.mailboxes[self.id].look(note);
        starts
    }
}
