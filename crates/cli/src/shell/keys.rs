//! Bound on the length of a typed line. A terminal itself hands over no longer lines, and the
//! editor may draw a whole line anew for each key, so a file thrown at the shell would take for
//! ever. Pasted text comes as one key.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use rustyline::{
    Cmd, ConditionalEventHandler, Event, EventContext, KeyCode, KeyEvent, Modifiers, RepeatCount,
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

/// Whether a key is a character of the line. With Ctrl or Alt it is a command, as Ctrl-C is.
fn is_text(key: &KeyEvent) -> bool {
    matches!(key, KeyEvent(KeyCode::Char(_), Modifiers::NONE | Modifiers::SHIFT))
        || matches!(key, KeyEvent(KeyCode::Tab, _))
}

impl ConditionalEventHandler for LineLimit {
    fn handle(
        &self,
        event: &Event,
        _: RepeatCount,
        _: bool,
        context: &EventContext<'_>,
    ) -> Option<Cmd> {
        let left_out = event.get(0).is_some_and(is_text) && context.line().len() >= LINE_BYTES_MAX;
        if left_out {
            self.0.store(true, Relaxed);
        }
        left_out.then_some(Cmd::Noop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_too_long_still_takes_commands() {
        let with = |modifiers| KeyEvent(KeyCode::Char('C'), modifiers);
        assert!(is_text(&with(Modifiers::NONE)) && is_text(&with(Modifiers::SHIFT)));
        assert!(!is_text(&with(Modifiers::CTRL)), "Ctrl-C clears the line");
        assert!(is_text(&KeyEvent(KeyCode::Tab, Modifiers::NONE)));
    }
}
