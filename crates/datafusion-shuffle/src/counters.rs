//! What an exchange has done, in numbers that hold on any machine.

use std::sync::atomic::{AtomicU64, Ordering};

/// Declares the counters once: as a structure of numbers, and as what counts.
macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counts since the exchange was made, of all its links.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub struct Counters {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Counters {
            /// Their names, in the order of [`Counters::values`].
            pub const NAMES: &[&str] = &[$(stringify!($name)),*];

            /// All of them.
            pub fn values(&self) -> Vec<u64> {
                vec![$(self.$name),*]
            }

            /// From as many values as there are names.
            pub fn of_values(values: &[u64]) -> Option<Counters> {
                let [$($name),*] = *values else { return None };
                Some(Counters { $($name),* })
            }
        }

        impl std::ops::AddAssign for Counters {
            fn add_assign(&mut self, other: Counters) {
                $(self.$name += other.$name;)*
            }
        }

        /// What all threads count in.
        #[derive(Default)]
        pub(crate) struct Counts {
            $(pub(crate) $name: Count,)*
        }

        impl Counts {
            pub(crate) fn read(&self) -> Counters {
                Counters { $($name: self.$name.0.load(Ordering::Relaxed)),* }
            }
        }
    };
}

/// A number that only grows.
#[derive(Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }
}

counters! {
    /// Links made as a reader, and as a writer.
    links,
    /// Streams that readers have opened.
    streams,
    /// Batches that were put into slots.
    batches_sent,
    /// Of them, those whose types have no layout here, which went as Arrow IPC.
    serialised,
    /// Messages that they took, with ends of streams.
    messages_sent,
    /// Bytes of these messages, headers included. Each byte was copied once, into the slot.
    bytes_sent,
    /// Bytes that had to be rewritten before: offsets of slices, shifted bits, and values picked
    /// out of buffers that few views point to.
    rewritten_bytes,
    /// Batches that readers were given.
    batches_received,
    /// Messages that arrived.
    messages_received,
    /// Their bytes, headers included.
    bytes_received,
    /// Of the messages, those that batches read where they arrived.
    in_place,
    /// Bytes that were copied out of slots, because they were few or slots were scarce.
    copied_bytes,
    /// Bytes of columns that were put together from several slots: a second copy.
    joined_bytes,
    /// Credit that readers wrote, each for one stream.
    credits,
}
