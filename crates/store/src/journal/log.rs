//! The state of a journal, and appending to it.

use std::fmt;
use std::io::{self, ErrorKind};
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Waker;
use std::time::Duration;

use super::frame::{Frame, Sequence, Written};
use super::producers::Producers;
use crate::disk::{Disk, DiskFile};
use crate::error::{Error, Result};

/// Bytes of entries that are written at once, unless one entry has more.
const GROUP_BYTES: usize = 4 << 20;

/// A journal in a directory.
pub struct Journal {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) root: PathBuf,
    /// Name of the input.
    pub(super) name: String,
    pub(super) bytes_max: u64,
    pub(super) state: Mutex<State>,
    pub(super) changed: Condvar,
}

pub(super) struct State {
    /// A file that is locked as long as the journal is open.
    pub(super) lock: Option<Box<dyn DiskFile>>,
    /// The oldest first.
    pub(super) segments: Vec<Segment>,
    /// The file of the last segment, if this run has made it and no write has failed.
    pub(super) file: Option<Box<dyn DiskFile>>,
    /// The end of the durable entries.
    pub(super) end: Place,
    /// Where the present input begins.
    pub(super) begin: u64,
    /// The last entry says that the input has ended.
    pub(super) ended: bool,
    pub(super) producers: Producers,
    /// Entries to be written next.
    pub(super) open: Group,
    /// Producers whose entries are being written; `None`: nothing is.
    pub(super) writing: Option<Vec<String>>,
    /// To be called when something is durable.
    pub(super) waker: Option<Waker>,
}

/// A place between two entries.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Place {
    /// Entries before it.
    pub(super) first: u64,
    /// Bytes of these entries.
    pub(super) offset: u64,
}

/// A file of the journal.
#[derive(Debug, Clone)]
pub(super) struct Segment {
    pub(super) number: u64,
    pub(super) salt: u64,
    /// Its first entry, and the bytes of all entries before.
    pub(super) first: u64,
    pub(super) offset: u64,
    /// Where the input begins to which the entries belong.
    pub(super) begin: u64,
    /// Bytes of the segment's head.
    pub(super) head: u64,
    /// All its bytes.
    pub(super) bytes: u64,
}

/// Entries that are written together.
#[derive(Default)]
pub(super) struct Group {
    pub(super) payload: Vec<u8>,
    pub(super) entries: u64,
    /// Bytes of the entries.
    pub(super) bytes: u64,
    pub(super) ends: bool,
    pub(super) sequences: Vec<(String, u64)>,
    pub(super) outcome: Arc<OnceLock<Result<()>>>,
}

impl Group {
    fn push(&mut self, entry: &Written<'_>) {
        entry.put(&mut self.payload);
        self.entries += 1;
        self.bytes += entry.bytes.map_or(0, |bytes| bytes.len() as u64);
        self.ends |= entry.bytes.is_none();
        let sequence = entry.sequence.map(|one| (one.producer.to_string(), one.number));
        self.sequences.extend(sequence);
    }
}

/// Outcome of appending an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Appended {
    /// The entry is durable.
    Durable,
    /// An entry of the same producer with this number, or a greater one, was durable before. The
    /// entry does not count.
    Before,
}

impl Journal {
    /// A panic elsewhere cannot leave the state half changed, so a poisoned lock is as good.
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends an entry, or the end of the input (`None`), and waits until it is durable.
    ///
    /// # Errors
    /// The entry does not count: the disk has failed, or the journal is full
    /// ([`Error::may_pass`]: the same entry may be appended later).
    pub fn append(&self, bytes: Option<&[u8]>, sequence: Option<Sequence<'_>>) -> Result<Appended> {
        let entry = Written { sequence, bytes };
        let mut state = self.lock();
        while let Some(sequence) = sequence {
            if sequence.producer.is_empty() || sequence.producer.len() > 255 {
                return Err(self.unavailable("a producer has no name", "name the producer"));
            }
            if state.producers.has(sequence) {
                return Ok(Appended::Before);
            }
            let open = state.open.sequences.iter().map(|(producer, _)| producer);
            // The outcome of the producer's last entry decides.
            if !open.chain(state.writing.iter().flatten()).any(|of| *of == *sequence.producer) {
                break;
            }
            state = self.wait(state);
        }
        let room = entry.room();
        loop {
            let used = state.segments.iter().map(|segment| segment.bytes).sum::<u64>();
            if used + state.open.payload.len() as u64 + room > self.bytes_max {
                return Err(self.full(used));
            }
            let bytes = state.open.payload.len();
            if bytes == 0 || bytes as u64 + room <= GROUP_BYTES as u64 {
                break;
            }
            state = self.wait(state);
        }
        state.open.push(&entry);
        let outcome = state.open.outcome.clone();
        loop {
            if let Some(outcome) = outcome.get() {
                return outcome.clone().map(|()| Appended::Durable);
            }
            state = match state.writing {
                Some(_) => self.wait(state),
                None => self.write(state),
            };
        }
    }

    /// Writes the open group, while other threads fill the next one.
    fn write<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let group = mem::take(&mut state.open);
        let producers = group.sequences.iter().map(|(producer, _)| producer.clone());
        state.writing = Some(producers.collect());
        let mut written = Ok(());
        if state.file.is_none() {
            (state, written) = self.begin_segment(state);
        }
        if let (Ok(()), Some(mut file)) = (&written, state.file.take())
            && let Some(segment) = state.segments.last().cloned()
        {
            let Place { first, offset } = state.end;
            drop(state);
            let frame = Frame::encode(segment.salt, first, offset, &group.payload);
            let result = file.write(&frame).and_then(|()| file.sync());
            state = self.lock();
            match result {
                Ok(()) => state.wrote(file, frame.len() as u64, self.segment_bytes(&segment)),
                Err(error) => {
                    let path = self.path(segment.number);
                    written = Err(self.failed(&path, &error));
                    drop(file);
                    // Nothing in it counts.
                    if segment.bytes == segment.head && self.disk.unlink(&path).is_ok() {
                        state.segments.pop();
                    }
                }
            }
        }
        if written.is_ok() {
            state.end.first += group.entries;
            state.end.offset += group.bytes;
            state.ended |= group.ends;
            for (producer, number) in &group.sequences {
                state.producers.note(Sequence { producer, number: *number });
            }
        }
        state.writing = None;
        // Set once: by who has taken the group.
        _ = group.outcome.set(written);
        self.changed.notify_all();
        if let Some(waker) = state.waker.take() {
            waker.wake();
        }
        state
    }

    /// Forgets entries before this offset: no restarted job will ask for them. Entries of the
    /// present input before `head` stay.
    ///
    /// # Errors
    /// A file that cannot be removed. It is removed by a later call, or a later run.
    pub fn trim(&self, offset: u64, head: u64) -> Result<()> {
        let mut state = self.lock();
        let begin = state.begin;
        let ends: Vec<u64> = state.segments.iter().skip(1).map(|next| next.offset).collect();
        let mut ends = ends.into_iter();
        // The last has no end.
        let goes = |segment: &mut Segment| {
            let stays = segment.begin == begin && segment.offset < head;
            ends.next().is_some_and(|end| end <= offset && !stays)
        };
        let gone: Vec<Segment> = state.segments.extract_if(.., goes).collect();
        drop(state);
        self.remove(&gone)
    }

    /// Begins with another input: forgets all entries, but not the producers.
    ///
    /// # Errors
    /// The disk has failed, and all is as before; or a file cannot be removed.
    pub fn restart(&self) -> Result<()> {
        let mut state = self.lock();
        while state.writing.is_some() {
            state = self.wait(state);
        }
        if state.begin == state.end.offset && state.segments.len() < 2 && !state.ended {
            return Ok(());
        }
        let before = (state.begin, state.ended);
        (state.begin, state.ended) = (state.end.offset, false);
        state.writing = Some(Vec::new());
        let (mut state, begun) = self.begin_segment(state);
        state.writing = None;
        if begun.is_err() {
            (state.begin, state.ended) = before;
        }
        self.changed.notify_all();
        begun?;
        let last = state.segments.len().saturating_sub(1);
        let gone: Vec<Segment> = state.segments.drain(..last).collect();
        drop(state);
        self.remove(&gone)
    }

    fn remove(&self, gone: &[Segment]) -> Result<()> {
        self.changed.notify_all();
        for Segment { number, .. } in gone {
            let path = self.path(*number);
            self.disk.unlink(&path).map_err(|error| self.failed(&path, &error))?;
        }
        Ok(())
    }

    /// Where the present input begins.
    pub fn begin(&self) -> u64 {
        self.lock().begin
    }

    /// The first byte of the present input from which all is there.
    pub fn start(&self) -> u64 {
        let state = self.lock();
        let (mut start, mut next) = (state.end.offset, None);
        for segment in state.segments.iter().rev() {
            if segment.begin != state.begin || next.is_some_and(|next| segment.number + 1 != next) {
                break;
            }
            (start, next) = (segment.offset, Some(segment.number));
        }
        start
    }

    /// Whether the input has ended.
    pub fn has_ended(&self) -> bool {
        self.lock().ended
    }

    /// Waits until something changes: entries are durable, or there is more room. At most so long.
    pub fn wait_for_room(&self, most: Duration) {
        // A wait that ends early is tried again by who has waited.
        _ = self.changed.wait_timeout(self.lock(), most);
    }

    /// Calls the waker of the reader.
    pub fn wake(&self) {
        let waker = self.lock().waker.take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn full(&self, used: u64) -> Error {
        let (used, max) = (used.div_ceil(1 << 20), self.bytes_max >> 20);
        self.unavailable(
            &format!("the journal is full: it has {used} of {max} MiB, which wait for checkpoints"),
            "take checkpoints more often, or raise 'journal_bytes'",
        )
    }

    pub(super) fn unavailable(&self, message: &str, help: &str) -> Error {
        let (object, message) = (self.root.display().to_string(), message.to_string());
        Error::Unavailable { object, message, help: help.into() }
    }

    /// The error of the disk.
    pub(super) fn failed(&self, path: &Path, error: &io::Error) -> Error {
        failed(path, error)
    }
}

impl State {
    /// A frame is durable. A full segment is followed by a new one.
    fn wrote(&mut self, file: Box<dyn DiskFile>, bytes: u64, bytes_max: u64) {
        if let Some(segment) = self.segments.last_mut() {
            segment.bytes += bytes;
            self.file = (segment.bytes < bytes_max).then_some(file);
        }
    }
}

/// The error of the disk.
pub(super) fn failed(path: &Path, error: &io::Error) -> Error {
    let (object, message) = (path.display().to_string(), error.to_string());
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Error::Full { object, message },
        _ => {
            let help = "see whether the disk works, and whether this user may write there".into();
            Error::Unavailable { object, message, help }
        }
    }
}

impl fmt::Debug for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Journal").field("root", &self.root).finish_non_exhaustive()
    }
}
