//! Random cases, an independent oracle, and ways to run.

#![allow(dead_code, reason = "each test uses a part of it")]

pub(crate) mod case;
pub(crate) mod oracle;
pub(crate) mod random;
pub(crate) mod script;

use millstream_txn::{Scheme, Settings};
use random::Random;

pub(crate) const ORDERED: [Scheme; 5] = [
    Scheme::TStream,
    Scheme::Lal,
    Scheme::Lwm,
    Scheme::Pat { partitions: 1 },
    Scheme::Pat { partitions: 7 },
];

/// `MILLSTREAM_SEEDS`, or the usual number of seeds.
pub(crate) fn seeds(usual: u64) -> u64 {
    let text = std::env::var("MILLSTREAM_SEEDS").ok();
    text.map_or(usual, |text| text.parse().expect("MILLSTREAM_SEEDS is a number"))
}

/// Settings that make small cases meet what is usual in large ones.
pub(crate) fn small_settings(random: &mut Random) -> Settings {
    Settings {
        solo_below: if random.one_in(8) { 1000 } else { 0 },
        piece: 1 + random.index(4),
        tail_block: random.index(4),
        dynamic: !random.one_in(8),
    }
}
