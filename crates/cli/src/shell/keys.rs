//! A bound on the length of a line that is typed. A terminal hands over no longer lines itself, and
//! the editor may draw all of a line anew for each key, so a file that is thrown at it would take
//! for ever. What is pasted comes as one key.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use rustyline::{
    Cmd, ConditionalEventHandler, Event, EventContext, KeyCode, KeyEvent, RepeatCount,
};

/// The longest line that is typed.
pub(super) const LINE_BYTES_MAX: usize = 4 << 10;

/// Takes no more characters into a line that is too long, and tells that it did not.
#[derive(Clone, Default)]
pub(super) struct LineLimit(Arc<AtomicBool>);

impl LineLimit {
    /// Whether something was left out of a line since the last time.
    pub(super) fn has_left_out(&self) -> bool {
        self.0.swap(false, Relaxed)
    }
}

impl ConditionalEventHandler for LineLimit {
    fn handle(
        &self,
        event: &Event,
        _: RepeatCount,
        _: bool,
        context: &EventContext<'_>,
    ) -> Option<Cmd> {
        let typed = matches!(event.get(0), Some(KeyEvent(KeyCode::Char(_) | KeyCode::Tab, _)));
        let left_out = typed && context.line().len() >= LINE_BYTES_MAX;
        if left_out {
            self.0.store(true, Relaxed);
        }
        left_out.then_some(Cmd::Noop)
    }
}
