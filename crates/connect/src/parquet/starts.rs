//! Starts of the pages of a row group's columns.
//!
//! Only the headers of pages say how many rows each page has. A chunk in the middle of a row group
//! would walk over all headers before its rows, and would decode a dictionary even if none of its
//! pages refers to one: writers leave the dictionary once it is large. So the first chunk that
//! walks over a header notes the page here, and later chunks begin at their first page.
//!
//! A header that this walk does not understand ends it. The library then walks on from the last
//! page before, and names the error if there is one.

use std::collections::HashMap;
use std::io::Read;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::reader::ChunkReader;

use super::thrift;
use crate::input::Anywhere;

/// Bytes of a page's header that are read at once. Most have some thirty.
pub(super) const HEADER_BYTES: usize = 256;

/// Pages of the leaf columns of a row group, from the first page on, as far as chunks have come.
#[derive(Debug, Default)]
pub(super) struct PageStarts(Mutex<HashMap<usize, ColumnStarts>>);

/// Pages of a column chunk.
#[derive(Debug, Default)]
struct ColumnStarts {
    pages: Vec<PageStart>,
    /// The place behind these pages; `None` before the first walk.
    end: Option<PagePlace>,
    /// Whether a chunk reads the dictionary, and so finds its errors.
    has_read_dictionary: bool,
}

/// A place between pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PagePlace {
    /// Offset in the file.
    pub(super) offset: u64,
    /// Rows of the pages before.
    pub(super) row: u64,
}

#[derive(Debug, Clone, Copy)]
struct PageStart {
    place: PagePlace,
    is_dictionary: bool,
    /// Whether the values are indexes of the dictionary.
    is_indexes: bool,
}

/// The page with which a chunk begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FirstPage {
    /// Number of pages before.
    pub(super) number: usize,
    pub(super) place: PagePlace,
    /// Whether the chunk needs the dictionary, which is the column chunk's first page.
    pub(super) needs_dictionary: bool,
}

impl PageStarts {
    /// The page with which a chunk of these rows begins, in a leaf column whose values are its
    /// rows; `None` if the chunk begins with the column's first page.
    pub(super) fn first_page(
        &self,
        leaf: usize,
        column: &ColumnChunkMetaData,
        bytes: &Anywhere,
        rows: &Range<u64>,
    ) -> Option<FirstPage> {
        let (start, length) = column.byte_range();
        loop {
            let mut columns = self.lock();
            let starts = columns.entry(leaf).or_default();
            let from = starts.end.unwrap_or(PagePlace { offset: start, row: 0 });
            if from.row >= rows.end || rows.start == 0 {
                return starts.first_page(rows);
            }
            let number = starts.pages.len();
            drop(columns);
            let pages = walk(bytes, from, number, start + length, rows.end);
            let mut columns = self.lock();
            let starts = columns.entry(leaf).or_default();
            // Another chunk may have walked meanwhile.
            if starts.pages.len() == number {
                let Some((_, end)) = pages.last() else { return starts.first_page(rows) };
                starts.end = Some(*end);
                starts.pages.extend(pages.iter().map(|(page, _)| *page));
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<usize, ColumnStarts>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ColumnStarts {
    fn first_page(&mut self, rows: &Range<u64>) -> Option<FirstPage> {
        let after = self.pages.partition_point(|page| page.place.row < rows.start);
        let at_start = self.pages.get(after).is_some_and(|page| page.place.row == rows.start);
        let number = if at_start { after } else { after.saturating_sub(1) };
        let has_dictionary = self.pages.first().is_some_and(|page| page.is_dictionary);
        let mut pages = self.pages.get(number..).unwrap_or_default().iter();
        let is_known = self.end.is_some_and(|end| end.row >= rows.end);
        let needs_dictionary = !self.has_read_dictionary
            || !is_known
            || pages.any(|page| page.is_indexes && page.place.row < rows.end);
        self.has_read_dictionary |= number == 0 || needs_dictionary;
        let page = self.pages.get(number).filter(|_| number > 0)?;
        let needs_dictionary = has_dictionary && needs_dictionary;
        Some(FirstPage { number, place: page.place, needs_dictionary })
    }
}

/// Pages from a place on, each with the place behind, up to the page with the row before `row_end`.
fn walk(
    bytes: &Anywhere,
    from: PagePlace,
    number: usize,
    offset_end: u64,
    row_end: u64,
) -> Vec<(PageStart, PagePlace)> {
    let (mut pages, mut place) = (Vec::new(), from);
    while place.offset < offset_end && place.row < row_end {
        let Some((page, end)) = page_at(bytes, place) else { break };
        if end.offset > offset_end || page.is_dictionary && number + pages.len() > 0 {
            break;
        }
        pages.push((page, end));
        place = end;
    }
    pages
}

/// The page at a place, and the place behind.
fn page_at(bytes: &Anywhere, place: PagePlace) -> Option<(PageStart, PagePlace)> {
    let mut header = [0; HEADER_BYTES];
    let read = bytes.get_read(place.offset).ok()?.read(&mut header).ok()?;
    let header = thrift::page_header(header.get(..read)?)?;
    let end = PagePlace {
        offset: place.offset.checked_add(header.bytes)?,
        row: place.row.checked_add(header.values.unwrap_or(0))?,
    };
    let is_dictionary = header.values.is_none();
    Some((PageStart { place, is_dictionary, is_indexes: header.is_indexes }, end))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pages of ten rows, the first `indexes` of which need the dictionary before them.
    fn starts(indexes: usize) -> ColumnStarts {
        let place = |number: u64| PagePlace { offset: 100 * number, row: 10 * number };
        let dictionary = PageStart { place: place(0), is_dictionary: true, is_indexes: false };
        let data = |number: u64| PageStart {
            place: PagePlace { offset: 50 + 100 * number, ..place(number) },
            is_dictionary: false,
            is_indexes: number < indexes as u64,
        };
        let pages = [dictionary].into_iter().chain((0..5).map(data)).collect();
        ColumnStarts { pages, end: Some(place(5)), has_read_dictionary: false }
    }

    #[test]
    fn a_chunk_begins_with_the_page_of_its_first_row() {
        let mut starts = starts(2);
        let mut first = |rows: Range<u64>| {
            let first = starts.first_page(&rows);
            first.map(|first| (first.number, first.place.row, first.needs_dictionary))
        };
        // The first chunk to come reads the dictionary, whether or not its pages need one.
        assert_eq!(first(30..40), Some((4, 30, true)));
        assert_eq!(first(30..40), Some((4, 30, false)));
        assert_eq!(first(0..20), None);
        assert_eq!(first(5..20), Some((1, 0, true)));
        assert_eq!(first(19..40), Some((2, 10, true)));
        assert_eq!(first(20..40), Some((3, 20, false)));
        assert_eq!(first(49..50), Some((5, 40, false)));
        // Behind the known pages there may be indexes.
        assert_eq!(first(49..51), Some((5, 40, true)));
    }
}
