//! How far one followed file has been read, and what becomes of it.

use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use millstream_contract::table::Chunk;
use millstream_contract::{Error, Result};

use super::saved::{Id, Naming, Saved, Seen, before};
use crate::beside::FileFacts;
use crate::input::{HEAD_BYTES, Packing, fingerprint, io_error, read_at};
use crate::records::{Arriving, Wanted};

/// Bytes read at once.
const READ_BYTES: usize = 256 << 10;

/// A file that no path names any more is complete when nothing has been written to it for so long.
const QUIET: Duration = Duration::from_secs(1);

/// A file that is followed.
pub(super) struct FileCursor {
    path: PathBuf,
    seen: Seen,
    /// Closed while nothing is written to it, if there are many.
    file: Option<File>,
    wanted: Wanted,
    arriving: Arriving,
    /// The file's first bytes.
    head: Vec<u8>,
    /// The last bytes read, after the position of their end.
    tail: (u64, Vec<u8>),
    /// Behind the last chunk that was handed out.
    mark: Saved,
    /// Whether reading goes on at the mark once the first record has been read.
    resumes: bool,
    /// Time of the last growth of a file that no path names any more.
    gone: Option<Instant>,
    /// True if the file is complete.
    finished: bool,
    /// A notice about the file, to be reported once.
    notice: Option<String>,
}

impl FileCursor {
    /// A file that was found, under the name `name` in positions, and where to go on in it; `None`
    /// if it is gone again.
    pub(super) fn new(
        path: PathBuf,
        seen: Seen,
        name: String,
        saved: Option<Saved>,
        wanted: &Wanted,
    ) -> Result<Option<FileCursor>> {
        let Some(file) = opened(&path, seen.id)? else { return Ok(None) };
        let (arriving, wanted) = (arriving(&path, wanted), wanted.clone());
        let (head, tail, gone, finished) = (Vec::new(), Default::default(), None, false);
        let (resumes, none, inode) = (saved.is_some(), fingerprint(&[]), seen.id.inode);
        let length = seen.length;
        let beginning = Saved { head: none, tail: none, line: 1, length, ..Saved::default() };
        let mark = Saved { inode, name, ..saved.unwrap_or(beginning) };
        Ok(Some(FileCursor {
            path,
            seen,
            file: Some(file),
            wanted,
            arriving,
            head,
            tail,
            mark,
            resumes,
            gone,
            finished,
            notice: None,
        }))
    }

    pub(super) fn id(&self) -> Id {
        self.seen.id
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Facts about the file beside its records; the path is the path under which the file was
    /// found.
    pub(super) fn facts(&self) -> FileFacts {
        FileFacts { path: self.arriving.path().clone(), modified: Some(self.seen.modified) }
    }

    /// True if no path names the file any more.
    pub(super) fn gone(&self) -> bool {
        self.gone.is_some()
    }

    /// Whether there is nothing more to read, ever.
    pub(super) fn is_done(&self) -> bool {
        self.finished && self.arriving.is_empty()
    }

    pub(super) fn is_open(&self) -> bool {
        self.file.is_some()
    }

    /// Whether it is open, has been read, and can be opened again.
    pub(super) fn is_quiet(&self) -> bool {
        self.is_open() && !self.gone() && self.arriving.taken() >= self.seen.length
    }

    pub(super) fn close(&mut self) {
        self.file = None;
    }

    /// Appends where reading goes on to the numbers of a position.
    pub(super) fn put_position(&self, numbers: &mut Vec<u64>) {
        self.mark.put(numbers);
    }

    /// Takes note that the file was found, perhaps under another name.
    pub(super) fn is_seen(&mut self, path: PathBuf, seen: Seen, naming: &Naming) -> Result<()> {
        if path != self.path {
            self.mark.name = naming.of(&path);
            self.path = path;
        }
        self.gone = None;
        let changed = seen != self.seen;
        self.seen = seen;
        if changed || self.resumes {
            self.check()?;
        }
        Ok(())
    }

    /// Takes note that the file was not found.
    pub(super) fn is_gone(&mut self) -> Result<()> {
        let since = *self.gone.get_or_insert_with(Instant::now);
        let Some(file) = &self.file else {
            // The file may be in the middle of being renamed.
            self.finished = since.elapsed() >= QUIET;
            return Ok(());
        };
        let length = file.metadata().map_err(|error| io_error(&self.path, &error))?.len();
        if length != self.seen.length {
            self.seen.length = length;
            self.gone = Some(Instant::now());
            self.check()?;
        } else if since.elapsed() >= QUIET && self.arriving.taken() >= length {
            self.finished = true;
        }
        Ok(())
    }

    /// Begins again where it is not the file that was read so far.
    fn check(&mut self) -> Result<()> {
        let taken = if self.resumes { self.mark.offset } else { self.arriving.taken() };
        let known = self.head.len() as u64;
        let same = self.seen.length >= taken && {
            self.open()?;
            self.first_bytes(known)? == self.head && self.has_tail()?
        };
        if !same {
            self.notice = Some(self.begins_again(taken));
            self.arriving = arriving(&self.path, &self.wanted);
            self.head.clear();
            self.tail = Default::default();
            self.resumes = false;
            self.note_place();
        }
        Ok(())
    }

    /// Notice that the file differs from the bytes read before; `taken` is the number of those
    /// bytes.
    fn begins_again(&self, taken: u64) -> String {
        let Seen { length, .. } = self.seen;
        let found = match length < taken {
            true => format!("it has {length} bytes, of which {taken} had been read"),
            false => "it is not what had been read".to_string(),
        };
        let path = self.path.display();
        format!("{path}: truncated or written anew ({found}): it is read from its beginning")
    }

    /// Takes the pending notice.
    pub(super) fn notice(&mut self) -> Option<String> {
        self.notice.take()
    }

    /// Opens it again, if it has been closed and is still there.
    fn open(&mut self) -> Result<()> {
        if self.file.is_none() {
            self.file = opened(&self.path, self.seen.id)?;
        }
        Ok(())
    }

    /// Whether the last bytes that were read are still there: a longer file may begin as this did.
    fn has_tail(&self) -> Result<bool> {
        let (end, tail) = &self.tail;
        let Some(file) = &self.file else { return Ok(true) };
        let mut bytes = vec![0; tail.len()];
        let start = end.saturating_sub(tail.len() as u64);
        let got = read_at(file, &mut bytes, start).map_err(|error| io_error(&self.path, &error))?;
        Ok(bytes.get(..got) == Some(tail))
    }

    /// At most so many of its first bytes, and at most [`HEAD_BYTES`].
    fn first_bytes(&self, most: u64) -> Result<Vec<u8>> {
        let mut bytes = vec![0; HEAD_BYTES.min(usize::try_from(most).unwrap_or(HEAD_BYTES))];
        let Some(file) = &self.file else { return Ok(Vec::new()) };
        let got = read_at(file, &mut bytes, 0).map_err(|error| io_error(&self.path, &error))?;
        bytes.truncate(got);
        Ok(bytes)
    }

    /// The next records that are whole.
    pub(super) fn chunk(&mut self) -> Result<Option<Box<dyn Chunk>>> {
        loop {
            if self.resumes {
                let Saved { offset, line, .. } = self.mark;
                // The first record tells how all are read.
                if self.arriving.begun(offset >= self.seen.length)? {
                    if offset > self.arriving.place().0 {
                        self.go_on(offset, line)?;
                    }
                    self.resumes = false;
                    continue;
                }
            } else if let Some(chunk) = self.arriving.chunk(self.finished)? {
                self.note_place();
                return Ok(Some(chunk));
            }
            if !self.read()? {
                return Ok(None);
            }
        }
    }

    /// Goes on at an offset, where a record begins on this line.
    fn go_on(&mut self, offset: u64, line: u64) -> Result<()> {
        self.open()?;
        let passed = self.file.as_ref().map(|file| before(file, offset)).transpose();
        let passed = passed.map_err(|error| io_error(&self.path, &error))?;
        self.arriving.go_on((offset, line), passed.unwrap_or_default());
        Ok(())
    }

    /// Takes note of the place behind the last chunk.
    fn note_place(&mut self) {
        let (offset, line) = self.arriving.place();
        let known = self.head.len().min(usize::try_from(offset).unwrap_or(usize::MAX));
        // Of a file that goes on in the middle, the first bytes are those of before.
        if self.mark.offset < HEAD_BYTES as u64 || offset < self.mark.offset {
            self.mark.head = fingerprint(&self.head[..known]);
        }
        self.mark.tail = fingerprint(self.arriving.passed());
        (self.mark.offset, self.mark.line, self.mark.length) = (offset, line, self.seen.length);
    }

    /// Reads once, up to where it ended when it was looked at. Whether something came.
    fn read(&mut self) -> Result<bool> {
        let taken = self.arriving.taken();
        let missing = self.seen.length.saturating_sub(taken).min(READ_BYTES as u64) as usize;
        if missing == 0 {
            return Ok(false);
        }
        self.open()?;
        let Some(file) = &self.file else { return Ok(false) };
        let buffer = self.arriving.buffer();
        let before = buffer.len();
        buffer.resize(before + missing, 0);
        let got = read_at(file, &mut buffer[before..], taken);
        buffer.truncate(before + got.as_ref().map_or(0, |got| *got));
        let got = got.map_err(|error| io_error(&self.path, &error))?;
        let (end, tail) = &mut self.tail;
        if *end != taken {
            tail.clear();
        }
        tail.extend_from_slice(buffer.get(before..).unwrap_or_default());
        tail.drain(..tail.len().saturating_sub(HEAD_BYTES));
        *end = taken + got as u64;
        // What comes next in it, where reading went back to a line's start, too.
        let known = self.head.len();
        let next = usize::try_from(taken).ok().and_then(|taken| known.checked_sub(taken));
        let new = next.and_then(|next| buffer.get(before + next..)).unwrap_or_default();
        self.head.extend_from_slice(&new[..new.len().min(HEAD_BYTES.saturating_sub(known))]);
        if taken == 0
            && let Some(packing) = Packing::of_bytes(&buffer[before..])
        {
            return Err(Error::Data {
                place: self.path.display().to_string(),
                message: format!("it is packed with {packing}, and what is followed must not be"),
                help: "let 'path' name only files of lines, for example '*.log'".into(),
            });
        }
        Ok(got > 0)
    }
}

fn arriving(path: &Path, wanted: &Wanted) -> Arriving {
    Arriving::new(path.display().to_string().into(), wanted.clone())
}

/// Opens a file; `None` if the path names another file by now, or no file.
fn opened(path: &Path, id: Id) -> Result<Option<File>> {
    let failed = |error| io_error(path, &error);
    let file = match File::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(failed)?,
    };
    let metadata = file.metadata().map_err(failed)?;
    Ok(Some(file).filter(|_| (metadata.dev(), metadata.ino()) == (id.device, id.inode)))
}
