//! Counters of an endpoint, most of them equal on all machines.

use millstream_fabric::{Completion, CompletionQueue};

use crate::shuffle::error::Result;

/// Declares counters once: as a structure, by name, and for adding up.
///
/// ```
/// millstream_flow::counters! {
///     /// Counts since midnight.
///     pub struct Counters {
///         /// Cars that passed.
///         cars,
///         /// Their passengers.
///         passengers,
///     }
/// }
///
/// let mut all = Counters { cars: 1, passengers: 4 };
/// all += Counters { cars: 2, passengers: 2 };
/// assert_eq!(Counters::NAMES, ["cars", "passengers"]);
/// assert_eq!(all.values(), [3, 6]);
/// assert_eq!(Counters::of_values(&[3, 6]), Some(all));
/// ```
#[macro_export]
macro_rules! counters {
    ($(#[$about:meta])* pub struct $counters:ident { $($(#[$doc:meta])* $name:ident,)* }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub struct $counters {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl $counters {
            /// Their names, in the order of [`Self::values`].
            pub const NAMES: &[&str] = &[$(stringify!($name)),*];

            /// All of them.
            pub fn values(&self) -> Vec<u64> {
                vec![$(self.$name),*]
            }

            /// From as many values as there are names.
            pub fn of_values(values: &[u64]) -> Option<$counters> {
                let [$($name),*] = *values else { return None };
                Some($counters { $($name),* })
            }
        }

        impl std::ops::AddAssign for $counters {
            fn add_assign(&mut self, other: $counters) {
                $(self.$name += other.$name;)*
            }
        }
    };
}

counters! {
    /// Counts since the endpoint was opened. Those of several endpoints can be added up.
    pub struct Counters {
        /// Messages sent or received; one for each destination.
        messages,
        /// Bytes of their payload.
        bytes,
        /// Write requests posted, those with an immediate value included.
        writes,
        /// Of them, writes with an immediate value.
        immediates,
        /// Of the writes, and of the datagrams, those that carried only credit.
        credits,
        /// Of the writes, those that only ask whether an idle peer is alive.
        probes,
        /// Send requests posted.
        sends,
        /// Read requests posted.
        reads,
        /// Datagrams posted, credit included.
        datagrams,
        /// Datagrams sent because time has passed: signs of life of their senders, which repeat
        /// earlier datagrams.
        keep_alives,
        /// Receives posted.
        receives,
        /// Completions taken from the completion queue.
        completions,
        /// Times that the completion queue was polled.
        polls,
        /// Words of memory that were looked at for a peer's news.
        looks,
        /// Datagrams that came again and were dropped.
        repeated,
        /// Queue pairs.
        queue_pairs,
        /// Bytes of registered memory, now. Buffers that left circulation are registered still;
        /// of a [`Pool`](crate::shuffle::Pool) only those that the endpoint has are counted.
        registered_bytes,
        /// Buffers in circulation, now.
        buffers,
        /// The most buffers that were in circulation.
        buffers_max,
        /// Buffers that were put into circulation because none was free.
        added,
        /// Buffers that were taken out of circulation because more than one was free.
        retired,
        /// Times that no buffer, or no message, was there when asked for.
        starved,
    }
}

impl Counters {
    /// Takes up to `out.len()` completions, and counts.
    pub(crate) fn complete<Q: CompletionQueue>(
        &mut self,
        queue: &mut Q,
        out: &mut [Completion],
    ) -> Result<usize> {
        self.polls += 1;
        let count = queue.poll(out)?;
        self.completions += count as u64;
        Ok(count)
    }

    /// Requests to remote network cards, for messages: everything but receives, and but `probes`
    /// and `keep_alives`, whose number depends on time.
    pub fn operations(&self) -> u64 {
        let all = self.writes + self.sends + self.reads + self.datagrams;
        all.saturating_sub(self.probes + self.keep_alives)
    }
}
