//! Spare memory: emptied tables and fragments, kept for later windows.

use millstream_state::{Fragment, Table};

use crate::operator::Counters;

/// What is kept: one of any size, a few that a near cache holds, and many that are small, where
/// windows of few keys come and go by the thousand.
const NEAR_MAX: usize = 4;
const SMALL_MAX: usize = 1 << 12;
const SMALL_BYTES: usize = 2 << 10;

/// Emptied tables and fragments that are kept, and what those have done that are not.
pub(super) struct Spare {
    tables: Vec<Table>,
    /// By leader.
    #[expect(clippy::vec_box, reason = "slices hold them in boxes")]
    fragments: Vec<Vec<Box<Fragment>>>,
    /// How many of either are kept if they are small.
    small_max: usize,
    /// Bytes of all.
    bytes: usize,
    retired: Counters,
}

impl Spare {
    /// For `small_max` small tables at the most.
    pub(super) fn new(leaders: usize, small_max: usize) -> Spare {
        Spare {
            tables: Vec::new(),
            fragments: (0..leaders).map(|_| Vec::new()).collect(),
            small_max: small_max.min(SMALL_MAX),
            bytes: 0,
            retired: Counters::default(),
        }
    }

    pub(super) fn take_table(&mut self) -> Option<Table> {
        let table = self.tables.pop()?;
        self.bytes -= table.bytes();
        Some(table)
    }

    pub(super) fn take_fragment(&mut self, leader: usize) -> Option<Box<Fragment>> {
        let fragment = self.fragments[leader].pop()?;
        self.bytes -= fragment_bytes(&fragment);
        Some(fragment)
    }

    /// Keeps an emptied table, unless there are enough.
    pub(super) fn keep_table(&mut self, table: Table) {
        if self.keeps(self.tables.len(), &table) {
            self.bytes += table.bytes();
            self.tables.push(table);
        } else {
            self.retire_table(table);
        }
    }

    /// Keeps an emptied fragment, unless there are enough for its leader.
    pub(super) fn keep_fragment(&mut self, leader: usize, fragment: Box<Fragment>) {
        if self.keeps(self.fragments[leader].len(), fragment.table()) {
            self.bytes += fragment_bytes(&fragment);
            self.fragments[leader].push(fragment);
        } else {
            self.retire_fragment(&fragment);
        }
    }

    /// Whether the next table is kept though it is not small.
    pub(super) fn keeps_large(&self) -> bool {
        self.tables.len() < NEAR_MAX
    }

    /// Whether an emptied table is to be kept beside so many.
    fn keeps(&self, spare: usize, table: &Table) -> bool {
        match spare {
            0 => true,
            n if n < NEAR_MAX => table.is_near(),
            n => n < self.small_max && table.bytes() <= SMALL_BYTES,
        }
    }

    pub(super) fn retire_table(&mut self, table: Table) {
        self.retired.add_table(&table);
    }

    pub(super) fn retire_fragment(&mut self, fragment: &Fragment) {
        debug_assert_eq!(fragment.rows(), 0, "rows that nobody has got");
        self.retired.add_fragment(fragment);
    }

    /// Keeps none any more.
    pub(super) fn release(&mut self) {
        self.bytes = 0;
        self.tables.drain(..).for_each(|table| self.retired.add_table(&table));
        let fragments = self.fragments.iter_mut().flat_map(|fragments| fragments.drain(..));
        fragments.for_each(|fragment| self.retired.add_fragment(&fragment));
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// What those that are kept and those that are gone have done.
    pub(super) fn counters(&self) -> Counters {
        let mut all = self.retired;
        self.tables.iter().for_each(|table| all.add_table(table));
        self.fragments.iter().flatten().for_each(|fragment| all.add_fragment(fragment));
        all
    }

    #[cfg(test)]
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.tables.len(), self.fragments.iter().flatten().count())
    }
}

/// Bytes of a fragment in its box.
fn fragment_bytes(fragment: &Fragment) -> usize {
    size_of::<Fragment>() + fragment.bytes()
}

impl Counters {
    pub(super) fn add_table(&mut self, table: &Table) {
        self.growths += table.growths();
    }

    pub(super) fn add_fragment(&mut self, fragment: &Fragment) {
        self.add_table(fragment.table());
    }
}
