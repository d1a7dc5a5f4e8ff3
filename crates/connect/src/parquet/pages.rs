//! The pages of a row group, as chunks of it read them.
//!
//! A chunk is some rows of a row group. Pages do not end where chunks do, and each column has its
//! own. Pages before the chunk are passed over, without unpacking them ([`super::starts`]).
//! Dictionary pages, and those data pages of which a later chunk needs the rest, are kept unpacked
//! as long as chunks of the row group are about ([`Kept`]), and one chunk unpacks a page while
//! others wait: otherwise a row group whose columns are a page each, as DuckDB writes them, would
//! be unpacked once per chunk.

use std::collections::{HashMap, HashSet};
use std::io::{self, Read};
use std::iter;
use std::mem;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use millstream_contract::decoding;
use parquet::arrow::arrow_reader::RowGroups;
use parquet::basic::Type as Physical;
use parquet::column::page::{Page, PageIterator, PageMetadata, PageReader};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData, RowGroupMetaData};
use parquet::file::reader::{ChunkReader, Length};
use parquet::file::serialized_reader::SerializedPageReader;
use parquet::schema::types::ColumnDescriptor;

use super::starts::{HEADER_BYTES, PageStarts};
use super::thrift;
use crate::input::{Anywhere, may_unpack_to};

/// Maximum bytes of kept pages in a row group, beside one larger page of each column, which its
/// reader holds anyway. Other pages are unpacked again.
const KEPT_BYTES_MAX: usize = 8 << 20;

/// Pages of a row group that several chunks need, unpacked, and the starts of all pages.
#[derive(Debug, Default)]
pub(super) struct Kept {
    pages: Mutex<KeptPages>,
    unpacked: Condvar,
    starts: PageStarts,
}

#[derive(Debug, Default)]
struct KeptPages {
    /// By leaf column, and place among its pages.
    pages: HashMap<(usize, usize), Page>,
    bytes: usize,
    /// By leaf column: the last page that is larger, by its place.
    large: HashMap<usize, (usize, Page)>,
    /// Pages that a chunk is unpacking in order to keep them.
    unpacking: HashSet<(usize, usize)>,
}

/// A page that this chunk unpacks while other chunks wait for the page.
struct Unpacking<'a> {
    kept: &'a Kept,
    at: (usize, usize),
}

impl Drop for Unpacking<'_> {
    fn drop(&mut self) {
        self.kept.lock().unpacking.remove(&self.at);
        self.kept.unpacked.notify_all();
    }
}

impl Kept {
    fn lock(&self) -> MutexGuard<'_, KeptPages> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A page, if it is kept or another chunk is about to keep it. Otherwise this chunk unpacks it.
    fn get_or_unpack(
        &self,
        at: (usize, usize),
        last: bool,
    ) -> std::result::Result<Page, Option<Unpacking<'_>>> {
        let mut kept = self.lock();
        loop {
            if let Some(page) = kept.get(at, last) {
                return Ok(page);
            }
            if !kept.unpacking.contains(&at) {
                let keeps = !last && kept.bytes < KEPT_BYTES_MAX && kept.unpacking.insert(at);
                return Err(keeps.then(|| Unpacking { kept: self, at }));
            }
            kept = self.unpacked.wait(kept).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn keep(&self, at: (usize, usize), page: &Page) {
        let mut kept = self.lock();
        let bytes = page.buffer().len();
        if bytes > KEPT_BYTES_MAX {
            kept.large.insert(at.0, (at.1, page.clone()));
        } else if kept.bytes + bytes <= KEPT_BYTES_MAX
            && kept.pages.insert(at, page.clone()).is_none()
        {
            kept.bytes += bytes;
        }
    }
}

impl KeptPages {
    /// A page; it is kept on unless this is the `last` chunk to need it.
    fn get(&mut self, at: (usize, usize), last: bool) -> Option<Page> {
        let large = self.large.get(&at.0).filter(|(place, _)| *place == at.1);
        if let Some(page) = large.map(|(_, page)| page.clone()) {
            if last {
                self.large.remove(&at.0);
            }
            return Some(page);
        }
        if !last {
            return self.pages.get(&at).cloned();
        }
        let page = self.pages.remove(&at)?;
        self.bytes -= page.buffer().len();
        Some(page)
    }
}

/// A row group, of which some rows are read.
#[derive(Clone)]
pub(super) struct Group {
    pub(super) bytes: Arc<Anywhere>,
    pub(super) metadata: Arc<ParquetMetaData>,
    pub(super) number: usize,
    pub(super) rows: Range<u64>,
    pub(super) kept: Arc<Kept>,
}

impl Group {
    fn reader(&self, column: &ColumnChunkMetaData) -> Result<SerializedPageReader<Anywhere>> {
        SerializedPageReader::new(self.bytes.clone(), column, self.num_rows(), None)
    }

    /// The dictionary of a leaf column, which is the column's first page.
    fn dictionary(&self, leaf: usize) -> Result<Option<Page>> {
        let reader = || self.reader(self.metadata.row_group(self.number).column(leaf));
        unpacked(|| reader()?.get_next_page(), &self.kept, (leaf, 0), false)
    }
}

impl RowGroups for Group {
    fn num_rows(&self) -> usize {
        self.metadata.row_group(self.number).num_rows() as usize
    }

    fn column_chunks(&self, leaf: usize) -> Result<Box<dyn PageIterator>> {
        let column = self.metadata.row_group(self.number).column(leaf);
        let is_flat = column.column_descr().max_rep_level() == 0;
        let first = || self.kept.starts.first_page(leaf, column, &self.bytes, &self.rows);
        let first = is_flat.then(first).flatten();
        let row = first.map_or(0, |first| first.place.row);
        let pages = Pages {
            inner: match &first {
                Some(first) => self.reader(&pages_from(column, first.place.offset)?)?,
                None => self.reader(column)?,
            },
            dictionary_of: first.filter(|first| first.needs_dictionary).map(|_| self.clone()),
            rows_before: row as usize,
            kept: self.kept.clone(),
            leaf,
            next: first.map_or(0, |first| first.number),
            row: is_flat.then_some(row),
            value_bytes: value_bytes(column.column_descr()),
            rows: self.rows.clone(),
        };
        Ok(Box::new(OneColumn(iter::once(Ok(Box::new(pages) as Box<dyn PageReader>)))))
    }

    fn row_groups(&self) -> Box<dyn Iterator<Item = &RowGroupMetaData> + '_> {
        Box::new(iter::once(self.metadata.row_group(self.number)))
    }

    fn metadata(&self) -> &ParquetMetaData {
        &self.metadata
    }
}

/// The pages of one column chunk.
struct OneColumn(iter::Once<Result<Box<dyn PageReader>>>);

impl Iterator for OneColumn {
    type Item = Result<Box<dyn PageReader>>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next()
    }
}

impl PageIterator for OneColumn {}

/// A column chunk without the pages before this offset.
fn pages_from(column: &ColumnChunkMetaData, offset: u64) -> Result<ColumnChunkMetaData> {
    let (start, length) = column.byte_range();
    let rest = (start + length).saturating_sub(offset);
    let later = column.clone().into_builder().set_dictionary_page_offset(None);
    later.set_data_page_offset(offset as i64).set_total_compressed_size(rest as i64).build()
}

/// Pages, of which some are kept.
struct Pages {
    inner: SerializedPageReader<Anywhere>,
    /// The row group, if the dictionary comes next and `inner` begins behind it.
    dictionary_of: Option<Group>,
    /// Rows before the first page of `inner`: the library passes over them as over one page.
    rows_before: usize,
    kept: Arc<Kept>,
    leaf: usize,
    /// The number of the next page.
    next: usize,
    /// Rows before it; `None` if that is not known, as headers do not tell.
    row: Option<u64>,
    /// Of a value of an array, with its two levels.
    value_bytes: u64,
    /// The rows to be read.
    rows: Range<u64>,
}

/// Approximate bytes of a decoded value with its levels.
fn value_bytes(column: &ColumnDescriptor) -> u64 {
    4 + match column.physical_type() {
        Physical::INT64 | Physical::DOUBLE => 8,
        Physical::INT96 | Physical::FIXED_LEN_BYTE_ARRAY => 16,
        _ => 4,
    }
}

impl Pages {
    /// Counts the values of a page of arrays: a single row may have all of them, which take no
    /// bytes of the page if they are the same.
    fn take_values(&self, about: &PageMetadata) -> Result<()> {
        match (self.row, about.num_levels) {
            (None, Some(values)) if !about.is_dict => {
                take(self.value_bytes.saturating_mul(values as u64))
            }
            _ => Ok(()),
        }
    }

    /// Rows before the page after next; `None` if that is not known.
    fn end_of(&self, page: &PageMetadata) -> Option<u64> {
        if page.is_dict {
            return self.row;
        }
        self.row?.checked_add(page.num_rows.or(page.num_levels)? as u64)
    }
}

impl PageReader for Pages {
    fn get_next_page(&mut self) -> Result<Option<Page>> {
        if let Some(group) = self.dictionary_of.take() {
            return group.dictionary(self.leaf);
        }
        if self.rows_before > 0 {
            return Err(ParquetError::General("rows before those of a chunk".into()));
        }
        let Some(about) = self.inner.peek_next_page()? else { return Ok(None) };
        let (at, end) = ((self.leaf, self.next), self.end_of(&about));
        self.take_values(&about)?;
        let last = !about.is_dict && end.is_some_and(|end| end <= self.rows.end);
        let mut is_unpacked = false;
        let unpack = || {
            is_unpacked = true;
            self.inner.get_next_page()
        };
        let page = unpacked(unpack, &self.kept, at, last)?;
        if !is_unpacked {
            self.inner.skip_next_page()?;
        }
        (self.next, self.row) = (self.next + 1, end);
        Ok(page)
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>> {
        let rows = (self.rows_before > 0).then_some(self.rows_before);
        match self.dictionary_of {
            Some(_) => Ok(Some(PageMetadata { num_rows: None, num_levels: None, is_dict: true })),
            None if rows.is_none() => self.inner.peek_next_page(),
            None => Ok(Some(PageMetadata { num_rows: rows, num_levels: rows, is_dict: false })),
        }
    }

    fn skip_next_page(&mut self) -> Result<()> {
        if self.dictionary_of.take().is_some() || mem::take(&mut self.rows_before) > 0 {
            return Ok(());
        }
        if let Some(about) = self.inner.peek_next_page()? {
            (self.next, self.row) = (self.next + 1, self.end_of(&about));
        }
        self.inner.skip_next_page()
    }

    fn at_record_boundary(&mut self) -> Result<bool> {
        self.inner.at_record_boundary()
    }
}

impl Iterator for Pages {
    type Item = Result<Page>;

    fn next(&mut self) -> Option<Result<Page>> {
        self.get_next_page().transpose()
    }
}

/// A page, kept on unless this is the `last` chunk to need the page.
fn unpacked(
    unpack: impl FnOnce() -> Result<Option<Page>>,
    kept: &Kept,
    at: (usize, usize),
    last: bool,
) -> Result<Option<Page>> {
    let _unpacking = match kept.get_or_unpack(at, last) {
        Ok(page) => return Ok(Some(page)),
        Err(unpacking) => unpacking,
    };
    let Some(page) = unpack()? else { return Ok(None) };
    check(&page)?;
    take(page.buffer().len() as u64)?;
    if !last {
        kept.keep(at, &page);
    }
    Ok(Some(page))
}

/// Counts bytes for which room is about to be made.
fn take(bytes: u64) -> Result<()> {
    decoding::take(bytes).map_err(|too_much| ParquetError::External(Box::new(too_much)))
}

/// The library makes room for as many values as a dictionary claims to have.
fn check(page: &Page) -> Result<()> {
    match page {
        Page::DictionaryPage { buf, num_values, .. } if *num_values as usize > buf.len() => {
            let bytes = buf.len();
            let message = format!("a dictionary of {num_values} values in {bytes} bytes");
            Err(ParquetError::General(message))
        }
        _ => Ok(()),
    }
}

impl Length for Anywhere {
    fn len(&self) -> u64 {
        self.length()
    }
}

impl ChunkReader for Anywhere {
    type T = Front;

    fn get_read(&self, start: u64) -> Result<Front> {
        Ok(Front { bytes: self.clone(), next: start, buffer: Bytes::new(), looked: false })
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        self.read(start, length).map_err(|error| ParquetError::External(Box::new(error)))
    }
}

/// The header of a page, read as far as it is asked for. The library reads nothing else so.
pub(crate) struct Front {
    bytes: Anywhere,
    next: u64,
    buffer: Bytes,
    /// Whether its sizes have been looked at.
    looked: bool,
}

impl Front {
    /// The library makes room for as many bytes as a page claims to have.
    fn check_sizes(&mut self) -> io::Result<()> {
        match thrift::page_bytes(&self.buffer).filter(|_| !self.looked) {
            Some((unpacked, packed)) if unpacked > may_unpack_to(packed) => {
                Err(io::Error::other(format!("a page of {unpacked} bytes in {packed}")))
            }
            sizes => {
                self.looked = true;
                decoding::check(sizes.map_or(0, |(unpacked, _)| unpacked))
                    .map_err(|too_much| io::Error::other(format!("a page: {too_much}")))
            }
        }
    }
}

impl Read for Front {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.buffer.is_empty() {
            let read = self.bytes.read_at_most(self.next, HEADER_BYTES);
            self.buffer = read.map_err(io::Error::other)?;
            self.next += self.buffer.len() as u64;
            self.check_sizes()?;
        }
        let count = out.len().min(self.buffer.len());
        out[..count].copy_from_slice(&self.buffer.split_to(count));
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use parquet::basic::Encoding;

    use super::*;

    #[test]
    fn one_page_of_any_size_is_kept_of_each_column() {
        let page = |bytes: usize| Page::DataPage {
            buf: vec![0; bytes].into(),
            num_values: 1,
            encoding: Encoding::PLAIN,
            def_level_encoding: Encoding::RLE,
            rep_level_encoding: Encoding::RLE,
            statistics: None,
        };
        let kept = Kept::default();
        let length = |at, last| kept.lock().get(at, last).map(|page| page.buffer().len());
        let large = KEPT_BYTES_MAX + 1;
        for (at, bytes) in [((0, 0), 5), ((0, 1), large), ((1, 0), large), ((0, 2), 7)] {
            kept.keep(at, &page(bytes));
        }
        assert_eq!((length((0, 1), false), length((1, 0), true)), (Some(large), Some(large)));
        assert_eq!((length((1, 0), false), length((0, 0), false)), (None, Some(5)));
        kept.keep((0, 3), &page(large));
        assert_eq!((length((0, 1), false), length((0, 3), false)), (None, Some(large)));
        assert_eq!(length((0, 2), true), Some(7));
    }

    #[test]
    fn a_page_that_claims_more_than_any_packing_gives_is_refused() {
        // 1: the type, 2: 2,147,483,647 bytes unpacked, 3: 5 as they stand.
        let header = [0x15, 0, 0x15, 0xfe, 0xff, 0xff, 0xff, 0xf, 0x15, 10, 0];
        let read = |header: &[u8]| {
            let bytes = Anywhere::memory(header.to_vec(), "x".into());
            let mut out = Vec::new();
            bytes.get_read(0).unwrap().read_to_end(&mut out).map(|_| out)
        };
        let error = read(&header).unwrap_err().to_string();
        assert_eq!(error, "a page of 2147483647 bytes in 5");
        // As many in 65,536.
        let header = [0x15, 0, 0x15, 0xfe, 0xff, 0xff, 0xff, 0xf, 0x15, 0x80, 0x80, 8, 0];
        assert_eq!(read(&header).unwrap(), header);
    }
}
