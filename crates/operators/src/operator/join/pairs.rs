//! Pairs: rows of one side, looked up among the other side's rows.

use millstream_state::{Buckets, Range};

use super::sides::{JoinSide, SideColumns};
use crate::columns::keys::VarColumn;
use crate::passed::BatchRows;

/// Pairs that are found in a step, at the most.
pub(super) const PAIRS_MAX: usize = 8192;

/// For fewer rows, room for so many pairs is not worth its while.
const MANY_ROWS: usize = 512;

/// The side with fewer rows, among which those of the other are looked up.
pub(super) struct Built {
    pub(super) columns: SideColumns,
    pub(super) buckets: Buckets,
    /// Their keys, row after row, if a key is more than a word.
    keys: Vec<u64>,
    /// By row, whether it has a partner, where this matters.
    pub(super) matched: Vec<bool>,
}

/// Rows that are being looked up.
pub(super) struct Probed {
    pub(super) columns: SideColumns,
    /// By row, whether it has a partner, where this matters.
    pub(super) matched: Vec<bool>,
    ranges: Vec<Range>,
    /// The row that has not been looked up to its end.
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
    pub(super) fn new(side: &JoinSide, columns: SideColumns, equal: bool, marks: bool) -> Built {
        let (width, told) = (side.codec.words(), side.has_null_word() && !equal);
        let SideColumns { keys, hashes, .. } = &columns;
        let counts = |row: usize| !told || keys[row * width] == 0;
        let is_word = is_word(side);
        let buckets = match is_word {
            true => Buckets::of_words(hashes, keys, counts),
            false => Buckets::new(hashes, hashes, counts),
        };
        let matched = vec![false; if marks { columns.rows } else { 0 }];
        // Hashes are not needed any more.
        let SideColumns { rows, keys, columns, places, .. } = columns;
        let keys = if is_word { Vec::new() } else { keys };
        let columns = SideColumns { rows, keys: Vec::new(), hashes: Vec::new(), columns, places };
        Built { columns, buckets, keys, matched }
    }

    pub(super) fn bytes(&self) -> usize {
        self.columns.bytes()
            + self.buckets.bytes()
            + 8 * self.keys.capacity()
            + self.matched.capacity()
    }
}

/// Rows of one side that may have a partner among the rows of the other side.
#[derive(Default)]
pub(super) struct Partners {
    /// Numbers of the rows, ascending.
    pub(super) picks: Vec<u32>,
    hashes: Vec<u64>,
    ranges: Vec<Range>,
}

impl Partners {
    /// Finds the rows with these keys that may have a partner.
    pub(super) fn of(
        &mut self,
        built: &Built,
        side: &JoinSide,
        keys: &[u64],
        rows: usize,
    ) -> &[u32] {
        let Partners { picks, hashes, ranges } = self;
        hashes.clear();
        side.codec.hash(keys, rows, hashes);
        let (buckets, tags) = (&built.buckets, if is_word(side) { keys } else { &hashes[..] });
        buckets.find(hashes, tags, ranges);
        picks.clear();
        for (row, tag) in tags.iter().enumerate() {
            buckets.look_ahead(ranges, row);
            let mut range = ranges[row];
            if buckets.next(&mut range, *tag).is_some() {
                picks.push(row as u32);
            }
        }
        picks
    }
}

impl SideColumns {
    /// Rows that are in the columns of their batch; of rows whose keys are `among` the other
    /// side's, if given.
    pub(super) fn in_place(
        side: &JoinSide,
        rows: &BatchRows,
        among: Option<&Built>,
    ) -> SideColumns {
        let (mut keys, mut places, width) = (Vec::new(), Vec::new(), side.codec.words());
        match among {
            None => (keys, places) = (rows.keys.clone(), rows.places.clone()),
            Some(built) => {
                let mut partners = Partners::default();
                for row in partners.of(built, side, &rows.keys, rows.places.len()) {
                    let row = *row as usize;
                    keys.extend_from_slice(&rows.keys[row * width..][..width]);
                    places.push(rows.places[row]);
                }
            }
        }
        let (count, mut hashes, columns) = (places.len(), Vec::new(), rows.columns().to_vec());
        side.codec.hash(&keys, count, &mut hashes);
        SideColumns { rows: count, keys, hashes, columns, places: Some(places) }
    }
}

/// Whether a key is a word that says all of it.
fn is_word(side: &JoinSide) -> bool {
    side.codec.words() == 1 && side.text_keys.is_empty()
}

impl Probed {
    pub(super) fn new(side: &JoinSide, columns: SideColumns, built: &Built, marks: bool) -> Probed {
        let mut ranges = Vec::with_capacity(columns.rows);
        let SideColumns { keys, hashes, .. } = &columns;
        built.buckets.find(hashes, if is_word(side) { keys } else { hashes }, &mut ranges);
        let matched = vec![false; if marks { columns.rows } else { 0 }];
        Probed { columns, matched, ranges, row: 0 }
    }

    /// Whether all rows have been looked up.
    pub(super) fn is_over(&self) -> bool {
        self.row >= self.columns.rows
    }

    /// Finds the next pairs.
    pub(super) fn find(&mut self, sides: [&JoinSide; 2], built: &Built, pairs: &mut Pairs) {
        let Probed { columns, ranges, row, .. } = self;
        let is_word = is_word(sides[0]);
        let texts = [columns.texts(sides[0]), built.columns.texts(sides[1])];
        let mut looking = Looking { built, columns, ranges, row, pairs };
        match is_word {
            true => looking.for_words(),
            false => looking.for_keys(&texts, sides[0].codec.words()),
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.columns.bytes() + self.matched.capacity() + self.ranges.capacity() * size_of::<Range>()
    }
}

/// Looking rows up, from one on.
struct Looking<'a> {
    built: &'a Built,
    columns: &'a SideColumns,
    ranges: &'a mut [Range],
    row: &'a mut usize,
    pairs: &'a mut Pairs,
}

impl Looking<'_> {
    fn for_words(&mut self) {
        let found = self.for_many_words();
        self.pairs.truncate(found);
        let buckets = &self.built.buckets;
        for row in *self.row..self.columns.rows {
            buckets.look_ahead(self.ranges, row);
            let (key, mut range) = (self.columns.keys[row], self.ranges[row]);
            while let Some(found) = buckets.next(&mut range, key) {
                if self.pairs.add(row, found) {
                    (*self.row, self.ranges[row]) = (row, range);
                    return;
                }
            }
        }
        *self.row = self.columns.rows;
    }

    /// Looks up rows as long as there is room for all that may be found, if there are many; returns
    /// how many pairs there are. A pair is written before it is known to be one, since the
    /// processor would guess wrong for every other row.
    fn for_many_words(&mut self) -> usize {
        let (buckets, rows) = (&self.built.buckets, self.columns.rows);
        if rows - *self.row < MANY_ROWS {
            return 0;
        }
        let Pairs { probed, built } = &mut *self.pairs;
        probed.resize(PAIRS_MAX, 0);
        built.resize(PAIRS_MAX, 0);
        let room = (probed.first_chunk_mut::<PAIRS_MAX>(), built.first_chunk_mut::<PAIRS_MAX>());
        let (Some(probed), Some(built)) = room else { return 0 };
        let mut found = 0;
        while *self.row < rows {
            let (row, range) = (*self.row, self.ranges[*self.row]);
            if found + buckets.left(range) >= PAIRS_MAX {
                break;
            }
            buckets.look_ahead(self.ranges, row);
            buckets.each(range, self.columns.keys[row], |other, is_one| {
                (probed[found], built[found]) = (row as u32, other);
                found += usize::from(is_one);
            });
            *self.row += 1;
        }
        found
    }

    fn for_keys(&mut self, [probed, built]: &[Vec<VarColumn<'_>>; 2], width: usize) {
        self.pairs.truncate(0);
        let buckets = &self.built.buckets;
        for row in *self.row..self.columns.rows {
            buckets.look_ahead(self.ranges, row);
            let (hash, mut range) = (self.columns.hashes[row], self.ranges[row]);
            let key = &self.columns.keys[row * width..(row + 1) * width];
            let place = self.columns.place(row);
            while let Some(found) = buckets.next(&mut range, hash) {
                let first = found as usize * width;
                let mut texts = probed.iter().zip(built);
                let equal = self.built.keys[first..first + width] == *key
                    && texts.all(|(a, b)| a.bytes(place) == b.bytes(found as usize));
                if equal && self.pairs.add(row, found) {
                    (*self.row, self.ranges[row]) = (row, range);
                    return;
                }
            }
        }
        *self.row = self.columns.rows;
    }
}

impl Pairs {
    fn truncate(&mut self, pairs: usize) {
        self.probed.truncate(pairs);
        self.built.truncate(pairs);
    }

    /// Adds one. True if there are as many as may be.
    fn add(&mut self, probed: usize, built: u32) -> bool {
        self.probed.push(probed as u32);
        self.built.push(built);
        self.built.len() >= PAIRS_MAX
    }
}
