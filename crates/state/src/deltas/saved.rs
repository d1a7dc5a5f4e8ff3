//! Rows of state on their way to a checkpoint and back: copied into groups of their own, and picked
//! by leader when they are merged again.

use std::borrow::Cow;
use std::sync::Arc;

use crate::deltas::foreign::Malformed;
use crate::memory::arena::Arena;
use crate::memory::scratch::Scratch;
use crate::table::compact::{move_key, move_values, referring};
use crate::table::keyed::Table;
use crate::table::layout::RowLayout;
use crate::table::partition::Leaders;
use crate::table::rows::RowsRef;
use crate::table::segment::Sources;

/// A copy of the rows of a table, and of all that they may refer to.
#[derive(Debug)]
pub struct TableCopy {
    words: Vec<u64>,
    arena: Arena,
    layout: Arc<RowLayout>,
}

impl TableCopy {
    /// Of such rows, which refer to an arena.
    pub fn of(words: Vec<u64>, arena: &Arena, layout: &Arc<RowLayout>) -> TableCopy {
        let arena = Arena::from_words(arena.all_words().to_vec());
        TableCopy { words, arena, layout: layout.clone() }
    }

    /// The rows.
    pub fn rows(&self) -> RowsRef<'_> {
        RowsRef::of_words(&self.words, &self.arena, &self.layout)
    }

    /// Bytes of rows and arena.
    pub fn bytes(&self) -> usize {
        8 * self.words.len() + self.arena.used_bytes()
    }
}

impl Table {
    /// A copy of its own rows.
    pub fn copy(&self) -> TableCopy {
        let mut words = Vec::with_capacity(self.rows() * self.layout.row_words());
        for block in 0..self.scan_blocks() {
            words.extend_from_slice(self.scan(block).as_words());
        }
        TableCopy::of(words, &self.arena, &self.layout)
    }

    /// Bytes of a [copy](Table::copy).
    pub fn copy_bytes(&self) -> usize {
        self.rows() * self.layout.row_bytes() + self.arena.used_bytes()
    }
}

/// A group of copied rows with an arena of their own, which holds nothing else. The group can be
/// merged as rows of another process ([`Table::merge_words`](crate::Table::merge_words)); a part of
/// its rows only beside the whole arena.
///
/// The arena's first word says how many words the arena has (upper half), and how many rows there
/// are (lower half), so that [`RowGroup::check`] notices missing rows or words.
#[derive(Debug)]
pub struct RowGroup {
    words: Vec<u64>,
    arena: Arena,
    /// For each row, how many words the arena had when it was copied.
    ends: Vec<usize>,
}

impl Default for RowGroup {
    fn default() -> RowGroup {
        let mut arena = Arena::default();
        arena.alloc_words(HEAD_WORDS);
        RowGroup { words: Vec::new(), arena, ends: Vec::new() }
    }
}

const HEAD_WORDS: usize = 1;

impl RowGroup {
    /// Copies rows, from the first on, as long as there are less than `rows_max` rows and
    /// `bytes_max` bytes, and one at least if there is none; returns how many.
    pub fn copy(&mut self, rows: &RowsRef<'_>, rows_max: usize, bytes_max: usize) -> usize {
        let (layout, row_words) = (rows.layout(), rows.layout().row_words());
        let room = rows_max.saturating_sub(self.rows()).min(rows.len());
        let words = &rows.as_words()[..room * row_words];
        if !layout.uses_arena() {
            let free = bytes_max.saturating_sub(self.bytes()).div_ceil(8 * row_words);
            let room = room.min(free.max(usize::from(self.rows() == 0)));
            self.words.extend_from_slice(&words[..room * row_words]);
            self.ends.resize(self.ends.len() + room, HEAD_WORDS);
            return room;
        }
        let values = referring(layout);
        let mut copied = 0;
        for row in words.chunks_exact(row_words) {
            if self.rows() > 0 && self.bytes() >= bytes_max {
                break;
            }
            let start = self.words.len();
            self.words.extend_from_slice(row);
            let row = &mut self.words[start..];
            move_key(row, layout, rows.arena(), &mut self.arena);
            move_values(row, 0, &values, rows.arena(), &mut self.arena);
            self.ends.push(self.arena.all_words().len());
            copied += 1;
        }
        copied
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.ends.len()
    }

    /// Bytes of rows and arena.
    pub fn bytes(&self) -> usize {
        8 * self.words.len() + self.arena.used_bytes()
    }

    /// The rows, which are of this layout.
    pub fn as_rows<'g>(&'g self, layout: &'g RowLayout) -> RowsRef<'g> {
        RowsRef::of_words(&self.words, &self.arena, layout)
    }

    /// Words of the rows; the arena; and, for each row, how many words the arena had when
    /// the row had been copied. The last row has all.
    pub fn finish(mut self) -> (Vec<u64>, Arena, Vec<usize>) {
        let (rows, words) = (self.rows() as u64, self.arena.all_words().len() as u64);
        self.arena.words_mut(0, HEAD_WORDS)[0] = words << 32 | rows;
        (self.words, self.arena, self.ends)
    }

    /// Checks that an arena is that of a whole group of so many rows. What rows refer to is checked
    /// when they are merged.
    pub fn check(arena: &Arena, rows: usize) -> Result<(), Malformed> {
        let words = arena.all_words();
        match words.first() {
            Some(head) if *head == (words.len() as u64) << 32 | rows as u64 => Ok(()),
            None if rows == 0 => Ok(()),
            _ => Err(Malformed { what: "a group of rows that is not whole" }),
        }
    }
}

impl RowLayout {
    /// The rows in `words` of the keys of the leader `me`. References into an arena are not
    /// followed.
    pub fn pick<'w>(
        &self,
        words: &'w [u64],
        leaders: &Leaders,
        me: usize,
        scratch: &mut Scratch,
    ) -> Result<Cow<'w, [u64]>, Malformed> {
        let row_words = self.row_words();
        if !words.len().is_multiple_of(row_words) {
            return Err(Malformed { what: "a part of a row" });
        }
        if leaders.count() == 1 {
            return Ok(words.into());
        }
        let count = words.len() / row_words;
        Sources::of(words, row_words).gather_keys(count, self, scratch);
        let own = leaders.own(me);
        if scratch.hashes[..count].iter().all(|hash| own.has(*hash)) {
            return Ok(words.into());
        }
        let rows = words.chunks_exact(row_words).zip(&scratch.hashes);
        let rows = rows.filter(|(_, hash)| own.has(**hash));
        Ok(rows.flat_map(|(row, _)| row).copied().collect::<Vec<u64>>().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::hash::{hash_bytes, hash_words};
    use crate::memory::log::{BLOCK_ROWS, ChunkPool};
    use crate::table::key::{Keys, VarKeys};
    use crate::values::kind::ValueKind;

    struct Names<'a>(&'a [String]);

    impl VarKeys for Names<'_> {
        fn bytes(&self, row: usize, _: usize) -> &[u8] {
            self.0[row].as_bytes()
        }
    }

    /// Numbers of names, each counted once, and its least name.
    fn named(count: usize) -> (Arc<RowLayout>, Table) {
        let values = [(ValueKind::Count, false), (ValueKind::MinBytes, true)];
        let layout = Arc::new(RowLayout::new(2, vec![1], &values));
        let mut table = Table::new(layout.clone());
        let (mut pool, mut scratch) =
            (ChunkPool::new(layout.row_words(), 0, None), Scratch::default());
        let names: Vec<String> = (0..count).map(|name| format!("the name {name}")).collect();
        for names in names.chunks(BLOCK_ROWS) {
            let words = names
                .iter()
                .flat_map(|name| [hash_bytes(name.as_bytes()), (name.len() as u64) << 32]);
            let words: Vec<u64> = words.collect();
            let hashes: Vec<u64> = words.chunks(2).map(hash_words).collect();
            let vars = Names(names);
            let keys = Keys { hashes: &hashes, ahead: &[], words: &words, vars };
            let mut block = table.update(&keys, &mut pool, &mut scratch);
            block.count(layout.values()[0], None);
            block.extreme_bytes(layout.values()[1], None, |row| names[row].as_bytes());
        }
        (layout, table)
    }

    fn names(table: &Table) -> Vec<String> {
        let mut names = Vec::new();
        for rows in (0..table.scan_blocks()).map(|block| table.scan(block)) {
            for row in 0..rows.len() {
                let key = String::from_utf8_lossy(rows.bytes(rows.word(row, 1)));
                names.push(format!("{key} {}", rows.word(row, 2)));
            }
        }
        names.sort();
        names
    }

    /// A copy has all rows, in order, and does not change with its table.
    #[test]
    fn copies_have_all_rows() {
        let (_, mut table) = named(10_000);
        let copy = table.copy();
        assert_eq!((copy.rows().len(), copy.bytes()), (10_000, table.copy_bytes()));
        let rows = (0..table.scan_blocks()).flat_map(|block| {
            let rows = table.scan(block);
            (0..rows.len())
                .map(|row| (rows.bytes(rows.word(row, 1)).to_vec(), rows.word(row, 2)))
                .collect::<Vec<_>>()
        });
        let copied = copy.rows();
        for (row, (name, count)) in rows.enumerate() {
            assert_eq!(copied.bytes(copied.word(row, 1)), name);
            assert_eq!(copied.word(row, 2), count);
        }
        let last = || copy.rows().bytes(copy.rows().word(9999, 1)).to_vec();
        let before = last();
        table.clear(&mut ChunkPool::new(1, 0, None));
        assert_eq!(last(), before);
        assert!(before.starts_with(b"the name "));
    }

    /// Groups of all sizes have each row once, and each leader picks its rows of them.
    #[test]
    fn groups_of_rows_are_merged_by_their_leaders() {
        let (layout, table) = named(1000);
        for (rows_max, bytes_max) in [(1, 1 << 20), (7, 1 << 20), (400, 1), (5000, 4000)] {
            let mut pool = ChunkPool::new(layout.row_words(), 0, None);
            let mut scratch = Scratch::default();
            let mut tables: Vec<Table> = (0..3).map(|_| Table::new(layout.clone())).collect();
            let (rows, mut copied, mut groups) = (table.scan(0), 0, 0);
            while copied < rows.len() {
                let mut group = RowGroup::default();
                let more = group.copy(&rows.slice(copied..rows.len()), rows_max, bytes_max);
                assert!(more > 0 && group.rows() == more && more <= rows_max);
                assert!(more == 1 || group.bytes() < bytes_max + 200);
                (copied, groups) = (copied + more, groups + 1);
                let (words, arena, ends) = group.finish();
                assert_eq!(ends.last(), Some(&arena.all_words().len()));
                let arena = Arena::from_words(arena.all_words().to_vec());
                assert_eq!(RowGroup::check(&arena, more), Ok(()));
                assert!(RowGroup::check(&arena, more + 1).is_err());
                for (me, table) in tables.iter_mut().enumerate() {
                    let own = layout.pick(&words, &Leaders::even(3), me, &mut scratch).unwrap();
                    table.merge_words(&own, &arena, &mut pool, &mut scratch).unwrap();
                }
            }
            assert!(groups > 1);
            let mut all: Vec<String> = tables.iter().flat_map(names).collect();
            all.sort();
            assert_eq!(all, names(&table));
            assert!(tables.iter().all(|table| table.rows() > 100));
        }
    }
}
