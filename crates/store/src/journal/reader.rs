//! Reading the durable entries of a journal, in their order.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::task::Waker;

use super::frame::{Entry, Frame, HEAD_BYTES, Written};
use super::log::{Journal, Place, Segment};
use crate::error::{Error, Result};

/// Reads a journal, one frame at a time.
pub struct Reader {
    journal: Arc<Journal>,
    /// Number of the next entry that is not in `entries`.
    next: u64,
    /// Segment that was read last, and where its next frame begins.
    at: Option<(u64, u64)>,
    entries: VecDeque<Entry>,
}

impl Reader {
    /// A reader of the entries from the beginning of a segment.
    pub(super) fn new(journal: &Arc<Journal>, segment: &Segment) -> Reader {
        let at = Some((segment.number, segment.head));
        Reader { journal: journal.clone(), next: segment.first, at, entries: VecDeque::new() }
    }

    /// A reader from a place between two entries on.
    pub(super) fn at(journal: &Arc<Journal>, place: Place) -> Reader {
        Reader { journal: journal.clone(), next: place.first, at: None, entries: VecDeque::new() }
    }

    /// Goes on with the entry in which this byte lies, or the first after it.
    pub(super) fn pass(&mut self, offset: u64) -> Result<()> {
        while let Some(entry) = self.next(Waker::noop())? {
            let end = entry.bytes.as_ref().map(|bytes| entry.offset + bytes.len() as u64);
            if end.is_none_or(|end| end > offset) {
                self.entries.push_front(entry);
                break;
            }
        }
        Ok(())
    }

    /// The next durable entry. If there is none, `waker` is called when there may be.
    ///
    /// # Errors
    /// A damaged file, or a disk that does not answer.
    pub fn next(&mut self, waker: &Waker) -> Result<Option<Entry>> {
        if let Some(entry) = self.entries.pop_front() {
            return Ok(Some(entry));
        }
        let segment = {
            let mut state = self.journal.lock();
            if self.next >= state.end.first {
                state.waker = Some(waker.clone());
                return Ok(None);
            }
            // Of empty segments the last counts.
            let found = state.segments.iter().rev().find(|segment| segment.first <= self.next);
            found.cloned()
        };
        let Some(segment) = segment else {
            return Err(self.journal.unavailable("its beginning is gone", "put the files back"));
        };
        let at = match self.at {
            Some((number, at)) if number == segment.number => at,
            _ => segment.head,
        };
        let (frame, bytes) = self.journal.frame(&segment, at)?;
        let mut payload = &bytes[HEAD_BYTES as usize..];
        let (mut number, mut offset) = (frame.first, frame.offset);
        while !payload.is_empty() {
            let entry = Written::take(&mut payload);
            let entry = entry.ok_or_else(|| self.journal.damaged(segment.number, at))?;
            let bytes = entry.bytes.map(<[u8]>::to_vec);
            let length = bytes.as_ref().map_or(0, |bytes| bytes.len() as u64);
            self.entries.push_back(Entry { number, offset, bytes });
            (number, offset) = (number + 1, offset + length);
        }
        if frame.first != self.next || self.entries.is_empty() {
            return Err(self.journal.damaged(segment.number, at));
        }
        (self.next, self.at) = (number, Some((segment.number, at + bytes.len() as u64)));
        Ok(self.entries.pop_front())
    }
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").field("next", &self.next).finish_non_exhaustive()
    }
}

impl Journal {
    /// A reader from this offset on, where an entry begins or goes on.
    ///
    /// # Errors
    /// The journal does not have it.
    pub fn reader(self: &Arc<Journal>, offset: u64) -> Result<Reader> {
        let start = self.start();
        let (end, found) = {
            let state = self.lock();
            let found = state.segments.iter().rev().find(|segment| segment.offset <= offset);
            (state.end.offset, found.cloned())
        };
        let reason = if offset > end {
            format!("it ends at byte {end}, and the job goes on at byte {offset}")
        } else if offset < start {
            format!("it begins at byte {start}, and the job goes on at byte {offset}")
        } else {
            let mut reader = match found {
                Some(segment) => Reader::new(self, &segment),
                None => Reader::at(self, Place::default()),
            };
            reader.pass(offset)?;
            return Ok(reader);
        };
        Err(self.unavailable(
            &reason,
            "name the directory that the job of this checkpoint had, as it was; or go on from the \
             latest checkpoint; or begin anew with --fresh",
        ))
    }

    /// A reader of the first entries of the present input, as far as they stay
    /// ([`Journal::trim`]).
    pub fn head(self: &Arc<Journal>) -> Reader {
        let state = self.lock();
        let first = state.segments.iter().find(|segment| segment.begin == state.begin).cloned();
        let end = state.end;
        drop(state);
        first.map_or_else(|| Reader::at(self, end), |segment| Reader::new(self, &segment))
    }

    /// The frame at a place of a segment, as it is there.
    pub(super) fn frame(&self, segment: &Segment, at: u64) -> Result<(Frame, Vec<u8>)> {
        let path = self.path(segment.number);
        let read = |bytes: u64| match self.disk.read(&path, Some(at..at.saturating_add(bytes))) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Err(self.damaged(segment.number, at))
            }
            read => read.map_err(|error| self.failed(&path, &error)),
        };
        let damaged = || self.damaged(segment.number, at);
        let frame = Frame::head(&read(HEAD_BYTES)?).filter(|frame| frame.salt == segment.salt);
        let frame = frame.ok_or_else(damaged)?;
        let bytes = read(HEAD_BYTES.saturating_add(frame.length))?;
        if frame.is_whole(&bytes) { Ok((frame, bytes)) } else { Err(damaged()) }
    }

    /// The error of a frame that is not as it was written.
    pub(super) fn damaged(&self, segment: u64, at: u64) -> Error {
        Error::Damaged {
            object: self.path(segment).display().to_string(),
            message: format!("the bytes from offset {at} on are not those that were written"),
            before: None,
        }
    }
}
