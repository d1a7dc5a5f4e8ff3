//! Names of slices and of windows.

use std::fmt::{self, Display, Formatter};

/// The name of a slice among those of a [`Windowing`](super::Windowing). A slice that closes
/// earlier has a lesser name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SliceId(pub(super) i64);

/// The name of a window among those of a [`Windowing`](super::Windowing). A window that fires
/// earlier has a lesser name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WindowId(pub(super) i64);

macro_rules! words {
    ($id:ident) => {
        impl $id {
            /// The only one if there is one for the whole input.
            pub const WHOLE: $id = $id(0);

            /// As a word of a message. Any word may come back: ask whether there is such a one.
            pub fn word(self) -> u64 {
                self.0 as u64
            }

            /// Of a word of a message.
            pub fn from_word(word: u64) -> $id {
                $id(word as i64)
            }
        }

        impl Display for $id {
            fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

words!(SliceId);
words!(WindowId);
