//! Opening a journal: the lock, the segments, and the end of what is durable.

use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex};

use super::frame::{Frame, HEAD_BYTES, Written};
use super::log::{Group, Journal, Place, Segment, State, failed};
use super::producers::Producers;
use super::segments::number_in;
use crate::disk::{Disk, DiskFile};
use crate::error::{Error, Result};

const LOCK: &str = "lock";

impl Journal {
    /// Opens the journal of an input, of at most so many bytes, in a directory, which is made if
    /// need be.
    ///
    /// # Errors
    /// Another job has the journal open, it is the journal of another input, a file is damaged, or
    /// the disk fails.
    pub fn open(
        disk: Arc<dyn Disk>,
        root: impl Into<PathBuf>,
        name: &str,
        bytes_max: u64,
    ) -> Result<Arc<Journal>> {
        let state = State {
            lock: None,
            segments: Vec::new(),
            file: None,
            end: Place::default(),
            begin: 0,
            ended: false,
            producers: Producers::default(),
            open: Group::default(),
            writing: None,
            waker: None,
        };
        let journal = Journal {
            disk,
            root: root.into(),
            name: name.into(),
            bytes_max,
            state: Mutex::new(state),
            changed: Condvar::new(),
        };
        let made = journal.make_directory(&journal.root);
        made.map_err(|error| failed(&journal.root, &error))?;
        let lock = journal.take_lock()?;
        journal.lock().lock = Some(lock);
        journal.find_segments()?;
        Ok(Arc::new(journal))
    }

    /// Keeps other jobs away.
    fn take_lock(&self) -> Result<Box<dyn DiskFile>> {
        let path = self.root.join(LOCK);
        let removed = self.disk.unlink_abandoned(&path);
        removed.map_err(|error| failed(&path, &error))?;
        self.disk.create(&path).map_err(|error| match error.kind() {
            std::io::ErrorKind::AlreadyExists => self.unavailable(
                "another job, or another table, has this journal open",
                "end that job, or give each table a directory of its own",
            ),
            _ => failed(&path, &error),
        })
    }

    fn find_segments(&self) -> Result<()> {
        let entries = self.disk.read_dir(&self.root).map_err(|error| failed(&self.root, &error))?;
        let segment = |entry: &crate::disk::DirEntry| Some((number_in(&entry.name)?, entry.bytes?));
        let mut files: Vec<(u64, u64)> = entries.iter().filter_map(segment).collect();
        files.sort_unstable();
        for (number, bytes) in files {
            let (segment, head) = self.open_segment(number, bytes)?;
            if head.name != self.name {
                return Err(self.unavailable(
                    &format!("it is the journal of '{}', and not of '{}'", head.name, self.name),
                    "give each table a directory of its own; for another input, name another one",
                ));
            }
            let mut state = self.lock();
            state.producers = Producers::of(&head.producers);
            state.begin = segment.begin;
            state.end = Place { first: segment.first, offset: segment.offset };
            state.segments.push(segment);
        }
        let last = self.lock().segments.last().cloned();
        last.map_or(Ok(()), |last| self.find_end(&last))
    }

    /// Finds the end of the last segment's whole frames, behind which there may be what a crash has
    /// torn.
    fn find_end(&self, last: &Segment) -> Result<()> {
        let (mut at, mut state) = (last.head, self.lock());
        loop {
            let (frame, bytes) = match self.frame(last, at) {
                Ok(found) => found,
                Err(error @ Error::Damaged { .. }) if self.goes_on(last, at)? => return Err(error),
                Err(Error::Damaged { .. }) => return Ok(()),
                Err(error) => return Err(error),
            };
            if frame.first != state.end.first {
                return Err(self.damaged(last.number, at));
            }
            let mut payload = &bytes[HEAD_BYTES as usize..];
            while !payload.is_empty() {
                let entry = Written::take(&mut payload);
                let entry = entry.ok_or_else(|| self.damaged(last.number, at))?;
                state.end.first += 1;
                state.end.offset += entry.bytes.map_or(0, |bytes| bytes.len() as u64);
                state.ended |= entry.bytes.is_none();
                if let Some(sequence) = entry.sequence {
                    state.producers.note(sequence);
                }
            }
            at += bytes.len() as u64;
        }
    }

    /// Whether there is a whole frame behind a place where there is none.
    fn goes_on(&self, last: &Segment, at: u64) -> Result<bool> {
        let path = self.path(last.number);
        let bytes = self.disk.read(&path, None).map_err(|error| failed(&path, &error))?;
        let (rest, salt) = (bytes.get(at as usize..).unwrap_or_default(), last.salt.to_le_bytes());
        let begins = |from: &usize| rest[*from..].starts_with(&salt);
        Ok((1..rest.len()).filter(begins).any(|from| Frame::parse(&rest[from..]).is_some()))
    }
}
