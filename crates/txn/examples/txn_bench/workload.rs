//! The interface between the driver and workloads.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use millstream_txn::{Application, Program, Store};

use crate::zipf::Random;

/// Parameters, named as the options of the command.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Parameters {
    pub(crate) keys: u64,
    pub(crate) theta: f64,
    pub(crate) read_ratio: f64,
    pub(crate) length: usize,
    /// Partitions; 0: keys are drawn without regard to partitions.
    pub(crate) partitions: usize,
    pub(crate) multi_partition: f64,
    /// Partitions of a transaction with several.
    pub(crate) spread: usize,
}

/// A workload: tables, programs, events, and the same by hand over a hash map.
pub(crate) trait Workload: Sized {
    type App: Application<Output = u64>;

    fn new(parameters: Parameters) -> Self;

    /// Tables with all rows.
    fn store(&self) -> Store;

    /// Programs; called after [`Workload::store`].
    fn programs(&self) -> Vec<Program<<Self::App as Application>::Event>>;

    fn application(&self) -> Self::App;

    fn event(&self, random: &mut Random) -> <Self::App as Application>::Event;

    /// A loop over plain maps that does the same. Returns outputs' sum.
    fn by_hand(&self, tables: &mut [Map], event: &<Self::App as Application>::Event) -> u64;

    /// Rows of all tables, for [`Workload::by_hand`].
    fn maps(&self) -> Vec<Map>;
}

/// A row of 64 bytes.
pub(crate) type Row = [u64; ROW_WORDS];
pub(crate) const ROW_WORDS: usize = 8;

/// A hash map as one would choose it for a fast loop.
pub(crate) type Map = HashMap<u64, Row, BuildHasherDefault<WordHasher>>;

/// Multiplies and folds.
#[derive(Debug, Default)]
pub(crate) struct WordHasher(u64);

impl Hasher for WordHasher {
    fn write(&mut self, _: &[u8]) {
        unreachable!("keys are words");
    }

    fn write_u64(&mut self, word: u64) {
        let product = u128::from(word ^ 0x9E37_79B9_7F4A_7C15) * 0xA076_1D64_78BD_642F;
        self.0 = (product >> 64) as u64 ^ product as u64;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
