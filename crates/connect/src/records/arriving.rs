//! Records of bytes that come in their own time: of a connection, of a file that grows.
//!
//! Nothing here waits. Bytes are put in as they come, and records are taken out once they are
//! whole. What the first record is, and so how all are decoded, is found out when it is whole.

use std::io::Cursor;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use memchr::{memchr, memchr_iter};
use millstream_contract::table::Chunk;
use millstream_contract::{Error, Result};

use super::long::Long;
use super::split::RecordChunk;
use super::{Block, Cut, Decode, Endless, RECORD_BYTES_MAX, Reader, RecordFormat, place};
use crate::input::{HEAD_BYTES, Input, Name};

/// Bytes of a chunk, unless one record has more.
const CHUNK_BYTES: usize = 256 << 10;

/// Format, columns and treatment of the expected records.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    pub(crate) format: Arc<dyn RecordFormat>,
    pub(crate) schema: SchemaRef,
    pub(crate) projection: Arc<[usize]>,
    /// Rows a batch should have at most.
    pub(crate) batch_rows: usize,
    /// Whether their offsets are wanted.
    pub(crate) offsets: bool,
}

/// The bytes of one input that have come and whose records have not been taken out.
pub(crate) struct Arriving {
    path: Name,
    wanted: Wanted,
    buffer: Vec<u8>,
    /// Bytes of `buffer` before `start` have been used.
    start: usize,
    /// Number of bytes from `start` on that are known to hold no whole record.
    looked: usize,
    /// Offset in the input and line of the first byte that has not been taken out.
    offset: u64,
    line: u64,
    /// The last bytes before `offset`, at most [`HEAD_BYTES`].
    passed: Vec<u8>,
    /// How blocks are decoded, once that is known.
    decode: Option<Arc<dyn Decode>>,
    /// The line that comes next, if it is too long and has been passed over in part.
    long: Option<Long>,
}

impl Arriving {
    /// An input without any bytes yet.
    pub(crate) fn new(path: Name, wanted: Wanted) -> Arriving {
        let (buffer, start, looked, passed) = (Vec::new(), 0, 0, Vec::new());
        let (offset, line, decode, long) = (0, 1, None, None);
        Arriving { path, wanted, buffer, start, looked, offset, line, passed, decode, long }
    }

    /// For messages.
    pub(crate) fn path(&self) -> &Name {
        &self.path
    }

    /// Where to put more bytes, at the end.
    pub(crate) fn buffer(&mut self) -> &mut Vec<u8> {
        self.buffer.drain(..self.start.min(self.buffer.len()));
        self.start = 0;
        &mut self.buffer
    }

    /// Bytes that have not been used yet.
    fn rest(&self) -> &[u8] {
        self.buffer.get(self.start..).unwrap_or_default()
    }

    /// Whether all that has been put in has been taken out.
    pub(crate) fn is_empty(&self) -> bool {
        self.rest().is_empty() && self.long.is_none()
    }

    /// Offset and line of the record that comes next.
    pub(crate) fn place(&self) -> (u64, u64) {
        self.long.as_ref().map_or((self.offset, self.line), |long| (long.offset, long.line))
    }

    /// The last bytes that have been taken out, at most [`HEAD_BYTES`].
    pub(crate) fn passed(&self) -> &[u8] {
        &self.passed
    }

    /// How many bytes have been put in.
    pub(crate) fn taken(&self) -> u64 {
        self.offset + self.rest().len() as u64
    }

    /// Goes on at this place, behind the bytes `passed`, after at least the first record has been
    /// put in and taken out.
    pub(crate) fn go_on(&mut self, (offset, line): (u64, u64), passed: Vec<u8>) {
        self.buffer.clear();
        self.passed = passed;
        self.start = 0;
        (self.looked, self.offset, self.line, self.long) = (0, offset, line, None);
    }

    /// The next whole records, if there are any. `last`: no more bytes will come, so the last
    /// record is whole, whether it has a line end or not.
    pub(crate) fn chunk(&mut self, last: bool) -> Result<Option<Box<dyn Chunk>>> {
        Ok(self.records(last)?.map(|records| Box::new(records) as _))
    }

    /// The same, as they stand.
    pub(crate) fn records(&mut self, last: bool) -> Result<Option<RecordChunk>> {
        if !self.begun(last)? {
            return Ok(None);
        }
        let block = match self.end(last)? {
            Some(end) => self.block(end),
            None => self.after_long(last),
        };
        let (Some(block), Some(decode)) = (block, self.decode.clone()) else { return Ok(None) };
        let format = self.wanted.format.clone();
        Ok(Some(RecordChunk { format, decode, block }))
    }

    /// Takes out the records that end there.
    fn block(&mut self, end: usize) -> Option<Block> {
        let data = self.rest().get(..end)?.to_vec();
        let lines = memchr_iter(b'\n', &data).count();
        let (line, offset, offsets) = (self.line, self.offset, self.wanted.offsets);
        self.line += lines as u64;
        self.pass(end);
        Some(Block { line, lines, offset, offsets, data, too_long: None, messages: None })
    }

    /// Whether it is known how blocks are decoded; finds out as soon as it can.
    pub(crate) fn begun(&mut self, last: bool) -> Result<bool> {
        if self.decode.is_some() {
            return Ok(true);
        }
        if self.is_empty() || !(last || self.is_worth_a_look()) {
            return Ok(false);
        }
        let mark = if self.rest().starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
        let format = self.wanted.format.clone();
        let whole = match self.rest().get(mark..) {
            None | Some([]) => mark,
            Some(records) => match format.cut(records, last, usize::MAX) {
                Cut::At(end) => mark + end,
                // Becomes a block, so that the error is reported if this is the first record.
                Cut::Unterminated(_) => self.rest().len(),
                Cut::More => return self.not_yet(),
            },
        };
        let head = self.rest().get(..whole).unwrap_or_default();
        if !last && format.is_blank(head.get(mark..).unwrap_or_default()) {
            return self.not_yet();
        }
        let mut reader =
            Reader::new(Input::Memory(Cursor::new(head.into())), self.path.clone(), format.clone());
        reader.start()?;
        let started = format.start(&mut reader, &self.wanted.schema, &self.wanted.projection)?;
        self.decode = Some(started.decode);
        let (offset, line) = reader.place();
        self.pass((offset as usize).min(self.rest().len()));
        self.line = line;
        Ok(true)
    }

    /// The first record is not whole yet.
    fn not_yet(&mut self) -> Result<bool> {
        self.looked = self.rest().len();
        match self.looked < RECORD_BYTES_MAX {
            true => Ok(false),
            false => Err(self.endless(Endless::TooLong)),
        }
    }

    /// A record ends with a line: without a line end in what is new there is none.
    fn is_worth_a_look(&self) -> bool {
        let new = self.rest().get(self.looked..).unwrap_or_default();
        memchr(b'\n', new).is_some() || self.rest().len() >= RECORD_BYTES_MAX
    }

    /// Where the chunk that comes next ends in the buffer. Nowhere, if a line that is too long
    /// comes first.
    fn end(&mut self, last: bool) -> Result<Option<usize>> {
        if self.long.is_some() || self.is_empty() || !(last || self.is_worth_a_look()) {
            return Ok(None);
        }
        let (format, rows) = (&self.wanted.format, self.wanted.batch_rows.max(1));
        let rest = self.rest();
        if let Some(some) = rest.get(..CHUNK_BYTES)
            && let Cut::At(end) = format.cut(some, false, rows)
        {
            return Ok(Some(end));
        }
        match format.cut(rest, last, rows) {
            Cut::At(end) => Ok(Some(end)),
            Cut::Unterminated(at) => Err(self.endless(Endless::Open(at))),
            Cut::More if rest.len() >= RECORD_BYTES_MAX => {
                let at = (self.offset, self.line);
                self.long = Long::begin(&**format, &self.path, rest, at);
                match self.long {
                    Some(_) => Ok(None),
                    None => Err(self.endless(Endless::TooLong)),
                }
            }
            Cut::More => {
                self.looked = self.rest().len();
                Ok(None)
            }
        }
    }

    /// So many more bytes have been taken out.
    fn pass(&mut self, bytes: usize) {
        let new = self.buffer.get(self.start..self.start + bytes).unwrap_or_default();
        self.passed.extend_from_slice(&new[new.len().saturating_sub(HEAD_BYTES)..]);
        self.passed.drain(..self.passed.len().saturating_sub(HEAD_BYTES));
        self.offset += bytes as u64;
        self.start += bytes;
        self.looked = 0;
    }

    /// The line that is too long, if there is one, once its end has come.
    fn after_long(&mut self, last: bool) -> Option<Block> {
        self.long.as_ref()?;
        let end = memchr(b'\n', self.rest());
        self.pass(end.map_or(self.rest().len(), |end| end + 1));
        self.line += u64::from(end.is_some());
        match end.is_some() || last {
            true => self.long.take().map(Long::block),
            false => None,
        }
    }

    #[cold]
    fn endless(&self, what: Endless) -> Error {
        let (at, message, help) = self.wanted.format.endless(self.rest(), what);
        let place = place(&self.path, self.rest(), self.line, at);
        Error::Data { place, message, help }
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::AsArray;
    use arrow::datatypes::{DataType, Field, Int64Type, Schema};
    use proptest::prelude::*;

    use super::*;
    use crate::csv::CsvFormat;
    use crate::ndjson::NdjsonFormat;

    fn wanted(format: Arc<dyn RecordFormat>) -> Wanted {
        let fields = vec![Field::new("a", DataType::Int64, true)];
        let schema = Arc::new(Schema::new(fields));
        Wanted { format, schema, projection: [0].into(), batch_rows: 100, offsets: false }
    }

    /// Numbers decoded from these parts, or the error.
    fn read(format: Arc<dyn RecordFormat>, parts: &[&[u8]]) -> Result<Vec<i64>> {
        let mut arriving = Arriving::new("x".into(), wanted(format));
        let mut numbers = Vec::new();
        let mut take = |arriving: &mut Arriving, last| -> Result<()> {
            while let Some(chunk) = arriving.chunk(last)? {
                let batch = chunk.decode()?;
                numbers.extend(batch.column(0).as_primitive::<Int64Type>().iter().flatten());
            }
            Ok(())
        };
        for part in parts {
            arriving.buffer().extend_from_slice(part);
            take(&mut arriving, false)?;
        }
        take(&mut arriving, true)?;
        assert_eq!(arriving.taken(), parts.iter().map(|part| part.len() as u64).sum::<u64>());
        Ok(numbers)
    }

    fn csv() -> Arc<dyn RecordFormat> {
        Arc::new(CsvFormat::default())
    }

    #[test]
    fn the_header_is_recognised_however_late_it_comes() {
        let parts: [&[u8]; 5] = [b"\xef\xbb", b"\xbf\n\n", b"\"", b"a\"\n", b"1\n2"];
        assert_eq!(read(csv(), &parts).unwrap(), [1, 2]);
    }

    #[test]
    fn half_lines_wait() {
        let mut arriving = Arriving::new("x".into(), wanted(csv()));
        arriving.buffer().extend_from_slice(b"17\n18\n1");
        let rows = |chunk: Option<Box<dyn Chunk>>| chunk.map(|c| c.decode().unwrap().num_rows());
        assert_eq!(rows(arriving.chunk(false).unwrap()), Some(2));
        assert_eq!(arriving.place(), (6, 3));
        assert!(arriving.chunk(false).unwrap().is_none());
        arriving.buffer().extend_from_slice(b"9\n");
        assert_eq!(rows(arriving.chunk(false).unwrap()), Some(1));
        assert_eq!(arriving.place(), (9, 4));
        assert!(arriving.chunk(true).unwrap().is_none());
    }

    #[test]
    fn what_is_wrong_has_its_place() {
        let error = read(csv(), &[b"1\n", b"2\nx\n"]).unwrap_err().to_string();
        assert!(error.starts_with("x:3:1: expected BIGINT for column 'a', found 'x'"), "{error}");
        let error = read(csv(), &[b"1\n\"2\n"]).unwrap_err().to_string();
        assert!(error.starts_with("x:2:1: the quote that opens here is never closed"), "{error}");
        let error = read(csv(), &[b"PAR1\x15\x04\n"]).unwrap_err().to_string();
        assert!(error.contains("found a Parquet file"), "{error}");
    }

    #[test]
    fn a_line_without_end_is_refused_and_not_kept_for_ever() {
        let part = vec![b'1'; 8 << 20];
        let parts: Vec<&[u8]> = std::iter::repeat_n(&part[..], 9).collect();
        let error = read(csv(), &parts).unwrap_err().to_string();
        assert!(error.contains("longer than 64 MiB"), "{error}");
    }

    #[test]
    fn a_line_that_is_too_long_is_left_out_where_malformed_records_are() {
        let format: Arc<dyn RecordFormat> = Arc::new(CsvFormat::skipping());
        let part = vec![b'1'; 8 << 20];
        for (end, after) in [(&b"1\n3\n"[..], vec![3]), (b"", vec![])] {
            let mut arriving = Arriving::new("x".into(), wanted(format.clone()));
            let (mut numbers, mut left_out, mut bytes) = (Vec::new(), Vec::new(), 0);
            let parts = [&b"1\n2\n"[..]].into_iter().chain((0..9).map(|_| &part[..])).chain([end]);
            let parts: Vec<&[u8]> = parts.collect();
            for (number, part) in parts.iter().enumerate() {
                arriving.buffer().extend_from_slice(part);
                assert!(arriving.buffer.len() <= RECORD_BYTES_MAX + (8 << 20), "it is kept");
                bytes += part.len() as u64;
                while let Some(chunk) = arriving.chunk(number + 1 == parts.len()).unwrap() {
                    let decoded = chunk.decode_reporting().unwrap();
                    let column = decoded.batch.column(0).as_primitive::<Int64Type>().clone();
                    numbers.extend(column.iter().flatten());
                    left_out.extend(decoded.first_left_out.map(|first| first.to_string()));
                }
                assert_eq!(arriving.taken(), bytes);
            }
            assert_eq!(numbers, [vec![1, 2], after].concat());
            assert_eq!(left_out, ["x:3:1: the record that starts here is longer than 64 MiB"]);
        }
    }

    proptest! {
        #[test]
        fn records_do_not_depend_on_how_their_bytes_come(
            text in "([0-9]{1,3}\n|\n|\"[0-9]\n?\"\n|[a#\"]{1,3}\n){0,9}[0-9]{0,2}",
            cuts in proptest::collection::vec(0usize..40, 0..6),
        ) {
            let mut cuts: Vec<usize> = cuts.into_iter().map(|at| at.min(text.len())).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            let parts: Vec<&[u8]> =
                cuts.windows(2).map(|cut| &text.as_bytes()[cut[0]..cut[1]]).collect();
            for format in [csv(), Arc::new(NdjsonFormat::default())] {
                let whole = read(format.clone(), &[text.as_bytes()]);
                let cut = read(format, &parts);
                match (whole, cut) {
                    (Ok(whole), Ok(cut)) => prop_assert_eq!(whole, cut),
                    (whole, cut) => prop_assert_eq!(whole.is_err(), cut.is_err()),
                }
            }
        }
    }
}
