//! Knowledge about the keys of each leader that fragments pass on to those of later windows: which
//! mode suits them.

use millstream_state::Mode;

/// Number of undecided windows after which earlier findings are forgotten.
const KNOWN_WINDOWS: u8 = 4;

/// Findings of fragments for fragments of later windows.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Known {
    pub(super) mode: Option<Mode>,
    /// Windows since then that were too small to decide anything.
    windows: u8,
}

impl Known {
    pub(super) fn mode(mode: Mode) -> Known {
        Known { mode: Some(mode), windows: 0 }
    }

    /// A window has gone by that did not say anything: after some, what is known is old. Small
    /// windows are aggregated, which costs little.
    pub(super) fn nothing_from_a_window(&mut self) {
        self.windows = self.windows.saturating_add(1);
        if self.windows >= KNOWN_WINDOWS && self.mode == Some(Mode::PassThrough) {
            *self = Known::mode(Mode::Aggregate);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_of_keys_grows_old_with_windows_that_say_nothing() {
        for (mode, later) in
            [(Mode::PassThrough, Mode::Aggregate), (Mode::Aggregate, Mode::Aggregate)]
        {
            let mut known = Known::mode(mode);
            (1..KNOWN_WINDOWS).for_each(|_| known.nothing_from_a_window());
            assert_eq!(known.mode, Some(mode));
            known.nothing_from_a_window();
            assert_eq!(known.mode, Some(later));
        }
        let mut nothing = Known::default();
        (0..1000).for_each(|_| nothing.nothing_from_a_window());
        assert_eq!(nothing.mode, None);
    }
}
