//! Pairs: rows of one side are looked up among those of the other.

use millstream_state::{Chains, Link};

use super::gathered::Columns;
use super::sides::Side;
use crate::columns::keys::VarColumn;

/// Pairs that are found in a step, at the most.
pub(super) const PAIRS_MAX: usize = 8192;

/// The side with fewer rows, among which those of the other are looked up.
pub(super) struct Built {
    pub(super) columns: Columns,
    pub(super) chains: Chains,
    /// Which rows have a partner, where it matters.
    pub(super) matched: Vec<bool>,
}

/// Rows that are being looked up.
pub(super) struct Probed {
    pub(super) columns: Columns,
    /// Which have a partner, where it matters.
    pub(super) matched: Vec<bool>,
    links: Vec<Link>,
    /// The row whose chain has not been followed to its end.
    row: usize,
}

/// Rows of both that belong together, by their numbers.
#[derive(Default)]
pub(super) struct Pairs {
    pub(super) probed: Vec<u32>,
    pub(super) built: Vec<u32>,
}

impl Built {
    /// Of rows of a side. Those with NULL for a key are not found, unless NULLs are `equal`.
    pub(super) fn new(side: &Side, columns: Columns, equal: bool, marks: bool) -> Built {
        let mut chains = Chains::new(columns.rows, side.codec.words());
        let told = side.has_null_word() && !equal;
        chains.add(&columns.keys, &columns.hashes, |key| !told || key[0] == 0);
        let matched = vec![false; if marks { columns.rows } else { 0 }];
        // Keys stand in the chains, too, and nobody asks for hashes any more.
        let columns = Columns { keys: Vec::new(), hashes: Vec::new(), ..columns };
        Built { columns, chains, matched }
    }

    pub(super) fn bytes(&self) -> usize {
        self.columns.bytes() + self.chains.bytes() + self.matched.capacity()
    }
}

impl Probed {
    pub(super) fn new(columns: Columns, chains: &Chains, marks: bool) -> Probed {
        let mut links = Vec::with_capacity(columns.rows);
        chains.find(&columns.hashes, &mut links);
        let matched = vec![false; if marks { columns.rows } else { 0 }];
        Probed { columns, matched, links, row: 0 }
    }

    /// Whether all rows have been looked up.
    pub(super) fn is_over(&self) -> bool {
        self.row >= self.columns.rows
    }

    /// Finds the next pairs.
    pub(super) fn find(&mut self, sides: [&Side; 2], built: &Built, pairs: &mut Pairs) {
        pairs.probed.clear();
        pairs.built.clear();
        let Probed { columns, links, row, .. } = self;
        let texts = [columns.texts(sides[0]), built.columns.texts(sides[1])];
        let mut looking = Looking { chains: &built.chains, columns, links, row, pairs };
        match sides[0].codec.words() {
            1 if texts[0].is_empty() => looking.for_words(),
            width => looking.for_keys(&texts, width),
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.columns.bytes() + self.matched.capacity() + self.links.capacity() * size_of::<Link>()
    }
}

/// Looking rows up, from one on.
struct Looking<'a> {
    chains: &'a Chains,
    columns: &'a Columns,
    links: &'a mut [Link],
    row: &'a mut usize,
    pairs: &'a mut Pairs,
}

impl Looking<'_> {
    fn for_words(&mut self) {
        while *self.row < self.columns.rows {
            let (key, link) = (self.columns.keys[*self.row], &mut self.links[*self.row]);
            while let Some(row) = self.chains.next_word(link, key) {
                if self.pairs.add(*self.row, row) {
                    return;
                }
            }
            *self.row += 1;
        }
    }

    fn for_keys(&mut self, [probed, built]: &[Vec<VarColumn<'_>>; 2], width: usize) {
        while *self.row < self.columns.rows {
            let at = *self.row;
            let key = &self.columns.keys[at * width..(at + 1) * width];
            while let Some(row) = self.chains.next(&mut self.links[at], key) {
                // Their hashes and lengths are equal.
                let mut texts = probed.iter().zip(built);
                let equal = texts.all(|(a, b)| a.bytes(at) == b.bytes(row as usize));
                if equal && self.pairs.add(at, row) {
                    return;
                }
            }
            *self.row += 1;
        }
    }
}

impl Pairs {
    /// Adds one. True if there are as many as may be.
    fn add(&mut self, probed: usize, built: u32) -> bool {
        self.probed.push(probed as u32);
        self.built.push(built);
        self.built.len() >= PAIRS_MAX
    }
}
