//! The logs that an index refers to: a table's own log and, in a joint table, the log of the rows
//! that it holds for other leaders.

use crate::memory::hash::hash_word;
use crate::memory::log::{ChunkPool, Cursor, Log, OWN_ROWS, RowId};
use crate::table::key::Keys;
use crate::table::partition::Own;

/// The logs whose rows an index names.
#[derive(Clone, Copy)]
pub(crate) struct Logs<'a> {
    pub(crate) own: &'a Log,
    /// Rows of other leaders, in a joint table.
    pub(crate) others: Option<&'a Log>,
}

impl Logs<'_> {
    /// Rows with lower numbers are absent.
    #[inline(always)]
    pub(crate) fn base(&self) -> RowId {
        self.others.unwrap_or(self.own).base()
    }

    /// The place of a row.
    pub(crate) fn row(&self, id: RowId) -> *mut u64 {
        self.others.filter(|_| id < OWN_ROWS).unwrap_or(self.own).row(id)
    }
}

/// The logs of a table that its index names.
pub(crate) struct LogsMut<'a> {
    pub(crate) own: &'a mut Log,
    /// Rows of other leaders, in a joint table.
    pub(crate) others: Option<&'a mut Log>,
    /// The keys that are the table's own; `None`: all present keys.
    pub(crate) own_keys: Option<Own<'a>>,
}

/// The hash of the `i`-th key; where there are none, keys have one word each.
#[inline(always)]
fn hash_of(hashes: &[u64], words: &[u64], i: usize) -> u64 {
    hashes.get(i).copied().unwrap_or_else(|| hash_word(words[i]))
}

impl LogsMut<'_> {
    pub(crate) fn shared(&self) -> Logs<'_> {
        Logs { own: self.own, others: self.others.as_deref() }
    }

    /// Makes room for the rows of so many keys: in each log for those that may come to stand there
    /// or, before one grows, for those that will if all keys are new.
    pub(crate) fn reserve<V>(&mut self, keys: &Keys<'_, V>, rows: usize, pool: &mut ChunkPool) {
        let Some((others, own_keys)) = self.others.as_deref_mut().zip(self.own_keys) else {
            return self.own.reserve(rows, pool);
        };
        let (mut own_rows, mut other_rows) = (rows, rows);
        // Otherwise small windows would take twice the room.
        if !(self.own.has_room(rows) && others.has_room(rows)) {
            let is_own = |i: &usize| own_keys.has(hash_of(keys.hashes, keys.words, *i));
            own_rows = (0..rows).filter(is_own).count();
            other_rows -= own_rows;
            if self.own.has_room(own_rows) && others.has_room(other_rows) {
                // Keys are mostly known, and would be counted again and again.
                (own_rows, other_rows) = (rows, rows);
            }
        }
        self.own.reserve(own_rows, pool);
        others.reserve(other_rows, pool);
    }

    /// Counts the rows up to these ends as written.
    pub(crate) fn commit(&mut self, ends: Ends) {
        self.own.commit(ends.own);
        if let Some(others) = &mut self.others {
            others.commit(ends.others);
        }
    }
}

/// Where logs end: the numbers of the rows that come next.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Ends {
    own: RowId,
    others: RowId,
}

impl Ends {
    /// How many rows there are from these on to those.
    pub(crate) fn rows_to(self, end: Ends) -> usize {
        (end.own - self.own) as usize + (end.others - self.others) as usize
    }
}

/// The rows that an index names, and where new ones go.
pub(crate) trait Rows {
    /// The place of a row.
    ///
    /// # Safety
    /// As for [`Cursor::row`].
    unsafe fn row(&self, id: RowId, row_words: usize) -> *mut u64;

    /// The number and the place of a new row for the `i`-th key.
    ///
    /// # Safety
    /// As for [`Cursor::append`].
    unsafe fn append(&mut self, i: usize, row_words: usize) -> (RowId, *mut u64);

    /// Where they end.
    fn ends(&self) -> Ends;
}

/// How many logs there are.
pub(crate) trait Kind {
    type Rows<'a>: Rows;

    /// Rows for new keys, given by `hashes` and `words`. Keys of one word each need no hashes.
    fn rows<'a>(logs: &'a LogsMut<'_>, hashes: &'a [u64], words: &'a [u64]) -> Self::Rows<'a>;
}

/// A table's own log.
pub(crate) struct SingleLog;

impl Kind for SingleLog {
    type Rows<'a> = Cursor<'a>;

    #[inline(always)]
    fn rows<'a>(logs: &'a LogsMut<'_>, _: &'a [u64], _: &'a [u64]) -> Cursor<'a> {
        logs.own.cursor()
    }
}

impl Rows for Cursor<'_> {
    #[inline(always)]
    unsafe fn row(&self, id: RowId, row_words: usize) -> *mut u64 {
        // SAFETY: as the caller promises.
        unsafe { Cursor::row(self, id, row_words) }
    }

    #[inline(always)]
    unsafe fn append(&mut self, _: usize, row_words: usize) -> (RowId, *mut u64) {
        // SAFETY: as the caller promises.
        unsafe { Cursor::append(self, row_words) }
    }

    #[inline(always)]
    fn ends(&self) -> Ends {
        Ends { own: self.end(), others: 0 }
    }
}

/// Both logs of a joint table.
pub(crate) struct Joint;

pub(crate) struct JointRows<'a> {
    /// The log of other leaders, and the table's own log.
    logs: [Cursor<'a>; 2],
    own_keys: Option<Own<'a>>,
    hashes: &'a [u64],
    words: &'a [u64],
}

impl Kind for Joint {
    type Rows<'a> = JointRows<'a>;

    #[inline(always)]
    fn rows<'a>(logs: &'a LogsMut<'_>, hashes: &'a [u64], words: &'a [u64]) -> JointRows<'a> {
        let others = logs.others.as_deref().expect("a joint table").cursor();
        JointRows { logs: [others, logs.own.cursor()], own_keys: logs.own_keys, hashes, words }
    }
}

impl Rows for JointRows<'_> {
    #[inline(always)]
    unsafe fn row(&self, id: RowId, row_words: usize) -> *mut u64 {
        // SAFETY: as the caller promises.
        unsafe { self.logs[1].row_of_either(&self.logs[0], id, row_words) }
    }

    #[inline(always)]
    unsafe fn append(&mut self, i: usize, row_words: usize) -> (RowId, *mut u64) {
        let is_own = self.own_keys.is_none_or(|own| own.has(hash_of(self.hashes, self.words, i)));
        // No jump: the processor could not predict it.
        // SAFETY: as the caller promises.
        unsafe { self.logs[usize::from(is_own)].append(row_words) }
    }

    #[inline(always)]
    fn ends(&self) -> Ends {
        Ends { own: self.logs[1].end(), others: self.logs[0].end() }
    }
}
