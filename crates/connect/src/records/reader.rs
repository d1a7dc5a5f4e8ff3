//! The reader of a file of records: it goes forward and hands out blocks of whole records.
//!
//! A last line without a line end is a record once the file has stopped growing. So reading goes
//! on, also beyond the file's extent, until the line end has been written or nothing has been
//! written for a while. Thus all processes find the same number of blocks, whenever they look; the
//! last block is decoded by only one process.

use std::sync::Arc;
use std::task::Waker;
use std::thread;
use std::time::Duration;

use memchr::{memchr, memchr_iter};
use millstream_contract::{Error, Result};

use super::long::Long;
use super::{Block, Cut, Endless, RecordFormat, place};
use crate::input::{Input, Name};

/// Pause before looking again for the end of a file's last line.
pub(crate) const LOOK: Duration = Duration::from_millis(10);

/// A record longer than this is taken for a quote that was never closed.
pub(crate) const RECORD_BYTES_MAX: usize = 64 << 20;

/// The file, from where the last block ended.
pub(crate) struct Reader {
    input: Input,
    path: Name,
    format: Arc<dyn RecordFormat>,
    /// Read, but not yet handed out; starts with a record.
    buffer: Vec<u8>,
    /// Whether the input has been read to its end, of a file to its extent.
    ended: bool,
    /// Whether the buffer's end is that of the last record.
    last: bool,
    /// Where in the buffer a file's extent ends, once records are read on behind it.
    extent: Option<usize>,
    /// Offset in the file and line of the buffer's start.
    offset: u64,
    line: u64,
    /// Whether the offsets of records are wanted.
    offsets: bool,
    /// The line that comes next, if it is too long and has been passed over in part.
    long: Option<Long>,
}

/// Whether there is a block to be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ready {
    Now,
    /// The waker is called when it is worth asking again.
    Called,
    /// To be asked again after [`LOOK`].
    Later,
}

impl Reader {
    pub(crate) fn new(input: Input, path: Name, format: Arc<dyn RecordFormat>) -> Reader {
        let (buffer, ended, last) = (Vec::new(), false, false);
        let (extent, offsets, long) = (None, false, None);
        let (offset, line) = (0, 1);
        Reader { input, path, format, buffer, ended, last, extent, offset, line, offsets, long }
    }

    /// The same, whose blocks tell the offsets of their records, if they are wanted.
    pub(crate) fn with_offsets(self, offsets: bool) -> Reader {
        Reader { offsets, ..self }
    }

    /// For messages.
    pub(crate) fn path(&self) -> &Name {
        &self.path
    }

    /// Goes on at this offset, where a record begins on this line.
    pub(crate) fn seek(&mut self, offset: u64, line: u64) -> Result<()> {
        match offset.checked_sub(self.offset).filter(|ahead| *ahead <= self.buffer.len() as u64) {
            Some(ahead) => drop(self.buffer.drain(..ahead as usize)),
            None => {
                self.input.seek(offset, &self.path)?;
                (self.ended, self.last, self.extent) = (false, false, None);
                self.buffer.clear();
            }
        }
        (self.offset, self.line, self.long) = (offset, line, None);
        Ok(())
    }

    /// Offset and line of the record that comes next.
    pub(crate) fn place(&self) -> (u64, u64) {
        self.long.as_ref().map_or((self.offset, self.line), |long| (long.offset, long.line))
    }

    /// After [`Reader::start`], the first bytes: however they came, those of the first five that
    /// are no byte order mark.
    pub(crate) fn head(&self) -> &[u8] {
        let most = 5usize.saturating_sub(self.offset as usize);
        &self.buffer[..self.buffer.len().min(most)]
    }

    /// Looks at the first bytes: takes a byte order mark off, refuses what is no text.
    pub(crate) fn start(&mut self) -> Result<()> {
        while self.buffer.len() < 5 && !self.ended {
            self.read(5)?;
        }
        let name = self.format.name();
        let wrong = |message: String, help: &str| {
            let place = self.path.to_string();
            Err(Error::Data { place, message, help: help.into() })
        };
        match self.buffer.as_slice() {
            // The first page's header begins with this byte.
            [b'P', b'A', b'R', b'1', 0x15, ..] => {
                let help = "write 'format' = 'parquet' among the table's options";
                return wrong(format!("expected {name}, found a Parquet file"), help);
            }
            [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => {
                let help = "convert it, for example with iconv -f UTF-16 -t UTF-8";
                return wrong("expected UTF-8, found UTF-16".into(), help);
            }
            [0xef, 0xbb, 0xbf, ..] => {
                self.buffer.drain(..3);
                self.offset = 3;
            }
            _ => {}
        }
        Ok(())
    }

    /// Whether `next` would return without waiting. If it would wait for a pipe, `waker` is called
    /// when there is more to read.
    pub(crate) fn ready(&mut self, bytes: usize, waker: &Waker) -> Result<Ready> {
        match &self.input {
            Input::Memory(_) | Input::Packed { .. } => Ok(Ready::Now),
            Input::File(_) => self.file_ready(bytes.max(1)),
            Input::Pipe(_) => self.pipe_ready(bytes.max(1), waker),
        }
    }

    fn file_ready(&mut self, want: usize) -> Result<Ready> {
        while self.buffer.len() < want && !self.ended {
            self.read(want)?;
        }
        let unfinished = self.ended && !self.last && !self.buffer.is_empty();
        if unfinished
            && self.format.cut(&self.buffer, false, 1) == Cut::More
            && !self.complete_last()?
        {
            return Ok(Ready::Later);
        }
        Ok(Ready::Now)
    }

    fn pipe_ready(&mut self, mut want: usize, waker: &Waker) -> Result<Ready> {
        loop {
            if self.begins_long() {
                let passed = self.pass_over(Some(waker))?;
                return Ok(if passed { Ready::Now } else { Ready::Called });
            }
            let Input::Pipe(pipe) = &self.input else { return Ok(Ready::Now) };
            if self.ended || self.buffer.len() >= RECORD_BYTES_MAX {
                return Ok(Ready::Now);
            }
            if self.buffer.len() < want && pipe.ready(waker) {
                self.read(want)?;
                continue;
            }
            if !self.buffer.is_empty() && self.format.cut(&self.buffer, false, 1) != Cut::More {
                return Ok(Ready::Now);
            }
            if self.buffer.len() < want {
                return Ok(Ready::Called);
            }
            want = self.buffer.len().saturating_mul(2).min(RECORD_BYTES_MAX);
        }
    }

    /// Reads on behind a file's extent, in whose last record the buffer ends, until that is
    /// complete or nothing more comes. Whether that is so now.
    fn complete_last(&mut self) -> Result<bool> {
        let extent = *self.extent.get_or_insert(self.buffer.len());
        while self.buffer.len() < RECORD_BYTES_MAX {
            let Input::File(file) = &mut self.input else {
                self.last = true;
                return Ok(true);
            };
            let before = self.buffer.len();
            let more = file.read_beyond(before.max(64 << 10), &mut self.buffer)?;
            if self.buffer.len() > before {
                if self.end_with_extent(extent, false) {
                    return Ok(true);
                }
            } else if more {
                return Ok(false);
            } else {
                self.end_with_extent(extent, true);
                self.last = true;
                return Ok(true);
            }
        }
        Ok(true)
    }

    /// Ends the buffer with the last record that begins before this offset, if that is complete.
    /// What seemed to be one record may be several: a quote in it turns out not to be closed, where
    /// malformed records are left out.
    fn end_with_extent(&mut self, extent: usize, last: bool) -> bool {
        let mut at = 0;
        while at < extent {
            let whole = self.format.cut(&self.buffer[at..extent], false, usize::MAX);
            let next = match whole {
                Cut::At(_) => whole,
                _ => self.format.cut(&self.buffer[at..], last, 1),
            };
            match next {
                Cut::At(end) => at += end,
                _ => return false,
            }
        }
        self.buffer.truncate(at);
        self.last = true;
        true
    }

    /// The next block: about `bytes` bytes, at most `records_max` records, at least one. From a
    /// pipe, the records that have come. Of a file, the block's end follows from its beginning, the
    /// two limits and the file's extent; what has been read ahead makes no difference, so a reader
    /// that was opened there finds the same block.
    pub(crate) fn next(&mut self, bytes: usize, records_max: usize) -> Result<Option<Block>> {
        let fill = !matches!(self.input, Input::Pipe(_));
        if let Some(block) = self.after_long()? {
            return Ok(Some(block));
        }
        let mut want = bytes.max(1);
        let mut short = self.buffer.is_empty();
        let end = loop {
            while self.buffer.len() < want && !self.ended && (fill || short) {
                self.read(want)?;
                short = self.buffer.is_empty();
            }
            if self.buffer.is_empty() {
                return Ok(None);
            }
            let all = self.buffer.len();
            let looked = if fill { all.min(want) } else { all };
            let last = self.last && looked == all;
            match self.format.cut(&self.buffer[..looked], last, records_max) {
                Cut::At(end) => break end,
                Cut::More if looked < all => {
                    want = looked.saturating_mul(2).min(RECORD_BYTES_MAX).max(looked + 1);
                }
                Cut::Unterminated(at) => return Err(self.endless(Endless::Open(at))),
                Cut::More if self.buffer.len() >= RECORD_BYTES_MAX => {
                    return match self.begins_long() {
                        true => self.after_long(),
                        false => Err(self.endless(Endless::TooLong)),
                    };
                }
                Cut::More if self.ended => {
                    while !self.complete_last()? {
                        thread::sleep(LOOK);
                    }
                }
                Cut::More => {
                    want = self.buffer.len().saturating_mul(2).min(RECORD_BYTES_MAX);
                    short = true;
                }
            }
        };
        let rest = self.buffer[end..].to_vec();
        self.buffer.truncate(end);
        let data = std::mem::replace(&mut self.buffer, rest);
        let lines = memchr_iter(b'\n', &data).count();
        let (line, offset, offsets) = (self.line, self.offset, self.offsets);
        let block = Block { line, lines, offset, offsets, data, too_long: None, messages: None };
        self.line += lines as u64;
        self.offset += block.data.len() as u64;
        Ok(Some(block))
    }

    /// Whether a line comes next that is too long, and is passed over.
    fn begins_long(&mut self) -> bool {
        if self.long.is_none() {
            let at = (self.offset, self.line);
            self.long = Long::begin(&*self.format, &self.path, &self.buffer, at);
        }
        self.long.is_some()
    }

    /// Passes over the rest of a line that is too long. Whether its end has come: a pipe from which
    /// nothing has come calls the waker, if there is one, when there is more.
    fn pass_over(&mut self, waker: Option<&Waker>) -> Result<bool> {
        loop {
            if let Some(end) = memchr(b'\n', &self.buffer) {
                self.buffer.drain(..end);
                self.offset += end as u64;
                return Ok(true);
            }
            self.offset += self.buffer.len() as u64;
            self.buffer.clear();
            if self.ended {
                // What a file has behind its extent is of the same line.
                self.last = true;
                return Ok(true);
            }
            if let (Input::Pipe(pipe), Some(waker)) = (&self.input, waker)
                && !pipe.ready(waker)
            {
                return Ok(false);
            }
            self.read(1 << 20)?;
        }
    }

    /// The line that was too long, if one was, once its end has come.
    fn after_long(&mut self) -> Result<Option<Block>> {
        if self.long.is_none() {
            return Ok(None);
        }
        self.pass_over(None)?;
        if self.buffer.first() == Some(&b'\n') {
            self.buffer.drain(..1);
            self.offset += 1;
            self.line += 1;
        }
        Ok(self.long.take().map(Long::block))
    }

    /// Takes back the block handed out last.
    pub(crate) fn put_back(&mut self, mut block: Block) {
        self.line = block.line;
        self.offset = block.offset;
        block.data.append(&mut self.buffer);
        self.buffer = block.data;
    }

    /// Reads once, so that the buffer may reach `want` bytes.
    fn read(&mut self, want: usize) -> Result<()> {
        let missing = want - self.buffer.len();
        if self.input.read(missing, &self.path, &mut self.buffer)? == 0 {
            // Of a file, more may have been written behind it.
            (self.ended, self.last) = (true, !matches!(self.input, Input::File(_)));
        }
        Ok(())
    }

    #[cold]
    fn endless(&self, what: Endless) -> Error {
        let (at, message, help) = self.format.endless(&self.buffer, what);
        Error::Data { place: place(&self.path, &self.buffer, self.line, at), message, help }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, Read};

    use super::*;
    use crate::csv::CsvFormat;
    use crate::input::Pipe;

    fn csv() -> Arc<dyn RecordFormat> {
        Arc::new(CsvFormat::default())
    }

    fn reader(data: &str, fill: bool) -> Reader {
        let pipe = |bytes: &[u8]| Pipe::new(Box::new(io::Cursor::new(bytes.to_vec())));
        let input = match fill {
            true => Input::memory(data.as_bytes()),
            false => Input::Pipe(pipe(data.as_bytes())),
        };
        let mut reader = Reader::new(input, "x.csv".into(), csv());
        reader.start().unwrap();
        reader
    }

    #[test]
    fn blocks_know_their_line_and_offset() {
        for fill in [false, true] {
            let mut reader = reader("\u{feff}ab\n\"c\nd\"\ne\n\nf", fill);
            let mut blocks = Vec::new();
            while let Some(block) = reader.next(1, 1).unwrap() {
                let text = String::from_utf8(block.data).unwrap();
                blocks.push((text, block.line, block.offset));
            }
            let expected =
                [("ab\n", 1, 3), ("\"c\nd\"\n", 2, 6), ("e\n", 4, 12), ("\n", 5, 14), ("f", 6, 15)];
            assert_eq!(blocks, expected.map(|(t, l, o)| (t.to_string(), l, o)));
        }
    }

    #[test]
    fn a_block_can_be_put_back() {
        let mut reader = reader("a\nb\nc\n", true);
        let first = reader.next(1, 1).unwrap().unwrap();
        reader.put_back(first);
        let all = reader.next(100, 100).unwrap().unwrap();
        assert_eq!((all.data.as_slice(), all.line, all.offset), (&b"a\nb\nc\n"[..], 1, 0));
    }

    #[test]
    fn an_open_quote_is_reported_where_it_opens() {
        let mut reader = reader("a\nb\nc,\u{e9},\"d\ne\nf", true);
        assert_eq!(reader.next(100, 100).unwrap().unwrap().lines, 2);
        let error = reader.next(100, 100).unwrap_err().to_string();
        assert!(
            error.starts_with("x.csv:3:5: the quote that opens here is never closed"),
            "{error}"
        );
    }

    #[test]
    fn what_is_no_text_is_refused() {
        for (bytes, word) in [(&b"PAR1\x15"[..], "Parquet"), (&[0xff, 0xfe, 0x41, 0][..], "UTF-16")]
        {
            let error = Reader::new(Input::memory(bytes), "x".into(), csv()).start().unwrap_err();
            assert!(error.to_string().contains(word), "{error}");
        }
    }

    #[test]
    fn a_failing_read_names_the_file() {
        struct Broken;
        impl Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::Error::other("disk on fire"))
            }
        }
        let input = Input::Packed { bytes: Box::new(Broken), read: 0 };
        let error = Reader::new(input, "x.csv".into(), csv()).start();
        assert_eq!(error.unwrap_err().to_string(), "x.csv: disk on fire");
    }
}
