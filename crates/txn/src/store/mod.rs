//! Shared state: tables of fixed rows in memory (paper, section 2, "shared mutable states").

mod index;
mod record;
mod segments;
mod spec;
mod table;

use crate::error::{Error, Result};
pub(crate) use record::{Record, RecordWords, load_words, store_words};
pub(crate) use segments::Segments;
pub use spec::{TableId, TableSpec};
pub(crate) use table::{SHARDS, Table, hash_of, shard_of};

/// Most tables of a store.
const TABLES_MAX: usize = 1 << 12;
const KEY_WORDS_MAX: usize = 64;
const ROW_WORDS_MAX: usize = 4096;

/// Tables that all workers read and change.
///
/// ```
/// use millstream_txn::{Store, TableSpec};
///
/// let mut store = Store::new();
/// let spec = TableSpec::new("accounts", 1, 1).check("balance >= 0", |row| row[0] as i64 >= 0);
/// let accounts = store.add(spec)?;
/// store.insert(accounts, &[7], &[100])?;
/// assert_eq!(store.get(accounts, &[7]), Some(vec![100]));
/// assert_eq!(store.rows(accounts), [(vec![7], vec![100])]);
/// # Ok::<(), millstream_txn::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct Store {
    tables: Vec<Table>,
}

impl Store {
    /// A store without tables.
    pub fn new() -> Store {
        Store::default()
    }

    /// Adds an empty table.
    ///
    /// # Errors
    /// If there are too many, or if the widths or the number of checks are out of range.
    pub fn add(&mut self, spec: TableSpec) -> Result<TableId> {
        let in_range = |what, given, max| match (1..=max).contains(&given) {
            true => Ok(()),
            false => Err(Error::Count { what, given, max }),
        };
        if self.tables.len() == TABLES_MAX {
            return Err(Error::Tables { given: TABLES_MAX + 1, max: TABLES_MAX });
        }
        if spec.checks.len() > usize::from(u8::MAX) {
            let (given, max) = (spec.checks.len(), usize::from(u8::MAX));
            return Err(Error::Count { what: "checks of a table", given, max });
        }
        in_range("words of a key", spec.key_words, KEY_WORDS_MAX)?;
        in_range("words of a row", spec.row_words, ROW_WORDS_MAX)?;
        let id = TableId::new(self.tables.len(), &spec);
        self.tables.push(Table::new(spec));
        Ok(id)
    }

    /// Sets the row of a key, outside of transactions: the checks are not asked.
    ///
    /// # Errors
    /// If the table is of another store, or the widths are wrong.
    pub fn insert(&mut self, table: TableId, key: &[u64], row: &[u64]) -> Result<()> {
        let table = self.checked(table, key.len())?;
        if row.len() != table.spec.row_words {
            let (expected, given) = (table.spec.row_words, row.len());
            return Err(Error::RowWords { table: table.spec.name.clone(), expected, given });
        }
        let hash = hash_of(key);
        let (number, _) = table.find_or_add(hash, key);
        table.words(shard_of(hash), number).store(true, row);
        Ok(())
    }

    /// The row of a key, if it exists. While transactions run, the row may be of any of them.
    pub fn get(&self, table: TableId, key: &[u64]) -> Option<Vec<u64>> {
        let table = self.checked(table, key.len()).ok()?;
        let hash = hash_of(key);
        let number = table.find(hash, key)?;
        let mut row = vec![0; table.spec.row_words];
        table.words(shard_of(hash), number).load(&mut row).then_some(row)
    }

    /// All rows as pairs of key and row, sorted by key. For use between batches.
    pub fn rows(&self, table: TableId) -> Vec<(Vec<u64>, Vec<u64>)> {
        let mut rows = Vec::new();
        if let Ok(table) = self.checked(table, usize::from(table.key_words)) {
            table.each_row(|key, row| rows.push((key.to_vec(), row.to_vec())));
        }
        rows.sort();
        rows
    }

    /// Records in memory, those without a row included. After a batch every record has a row.
    pub fn records(&self, table: TableId) -> usize {
        self.tables.get(table.number()).map_or(0, Table::records)
    }

    /// Bytes of a table's records and index.
    pub fn bytes(&self, table: TableId) -> usize {
        self.tables.get(table.number()).map_or(0, Table::bytes)
    }

    /// Name of a table.
    pub fn name(&self, table: TableId) -> &str {
        self.tables.get(table.number()).map_or("", |table| &table.spec.name)
    }

    /// Name of a table's check, for messages.
    pub(crate) fn check_name(&self, table: TableId, number: u8) -> &str {
        let checks = self.tables.get(table.number()).map(|table| &table.spec.checks);
        checks.and_then(|checks| checks.get(usize::from(number))).map_or("", |(name, _)| name)
    }

    /// All tables, in the order of adding.
    pub fn tables(&self) -> impl Iterator<Item = TableId> + '_ {
        self.tables.iter().enumerate().map(|(number, table)| TableId::new(number, &table.spec))
    }

    fn checked(&self, id: TableId, given: usize) -> Result<&Table> {
        let (number, tables) = (id.number(), self.tables.len());
        let table = self.tables.get(number).ok_or(Error::NoTable { number, tables })?;
        let expected = table.spec.key_words;
        if expected != given {
            return Err(Error::KeyWords { table: table.spec.name.clone(), expected, given });
        }
        Ok(table)
    }

    #[inline]
    pub(crate) fn table(&self, number: u16) -> &Table {
        &self.tables[usize::from(number)]
    }

    #[inline]
    pub(crate) fn words(&self, record: Record) -> RecordWords<'_> {
        self.table(record.table).words(usize::from(record.shard), record.number)
    }

    /// The record of a key, made without a row if need be, and whether it was made now.
    #[inline]
    pub(crate) fn find_or_add(&self, table: u16, hash: u64, key: &[u64]) -> (Record, bool) {
        let (number, made) = self.table(table).find_or_add(hash, key);
        (Record { table, shard: shard_of(hash) as u16, number }, made)
    }

    /// Forgets a record without a row. Only while the caller alone uses the shard.
    pub(crate) fn remove_if_absent(&self, record: Record) {
        self.table(record.table).remove_if_absent(usize::from(record.shard), record.number);
    }

    /// Words of the longest row.
    pub(crate) fn row_words_max(&self) -> usize {
        self.tables.iter().map(|table| table.spec.row_words).max().unwrap_or(0)
    }

    pub(crate) fn is_of(&self, id: TableId) -> bool {
        self.tables.get(id.number()).is_some_and(|table| {
            table.spec.key_words == usize::from(id.key_words)
                && table.spec.row_words == usize::from(id.row_words)
        })
    }
}
