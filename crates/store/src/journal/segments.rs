//! Files of a journal: names, heads, and the making of a new file.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::MutexGuard;

use serde::{Deserialize, Serialize};

use super::frame::{Frame, HEAD_BYTES};
use super::log::{Journal, Segment, State};
use crate::disk::DiskFile;
use crate::error::{Error, Result};

/// Version of the format.
const FORMAT: u32 = 1;
/// A segment that is being made.
const NEW: &str = "new";
const PREFIX: &str = "segment-";
/// Bytes of a segment, after which a new one begins: such a part of the journal, within these
/// bounds. The first of an input is short, for it may have to stay.
const PART: u64 = 8;
const BYTES_MAX: u64 = 64 << 20;
const BYTES_MIN: u64 = 64 << 10;

/// The head of a segment.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Head {
    format: u32,
    /// Name of the journal's input.
    pub(super) name: String,
    begin: u64,
    pub(super) producers: Vec<(String, u64)>,
}

/// The number in the name of a segment.
pub(super) fn number_in(name: &str) -> Option<u64> {
    name.strip_prefix(PREFIX)?.parse().ok()
}

impl Journal {
    pub(super) fn path(&self, segment: u64) -> PathBuf {
        self.root.join(format!("{PREFIX}{segment}"))
    }

    pub(super) fn segment_bytes(&self, segment: &Segment) -> u64 {
        match segment.offset == segment.begin {
            true => BYTES_MIN,
            false => (self.bytes_max / PART).clamp(BYTES_MIN, BYTES_MAX),
        }
    }

    /// Makes a segment that begins where the durable entries end.
    pub(super) fn begin_segment<'a>(
        &'a self,
        state: MutexGuard<'a, State>,
    ) -> (MutexGuard<'a, State>, Result<()>) {
        let head = Head {
            format: FORMAT,
            name: self.name.clone(),
            begin: state.begin,
            producers: state.producers.list(),
        };
        let (number, end) = (state.segments.last().map_or(1, |last| last.number + 1), state.end);
        drop(state);
        let payload = serde_json::to_vec(&head).unwrap_or_default();
        // Nobody can guess it, and so send bytes that look like a frame.
        let salt = RandomState::new().hash_one(number);
        let bytes = Frame::encode(salt, end.first, end.offset, &payload);
        let made = self.make_segment(number, &bytes);
        let mut state = self.lock();
        let made = made.map(|file| {
            let (head, bytes) = (bytes.len() as u64, bytes.len() as u64);
            let (first, offset, begin) = (end.first, end.offset, state.begin);
            state.segments.push(Segment { number, salt, first, offset, begin, head, bytes });
            state.file = Some(file);
        });
        (state, made.map_err(|error| self.failed(&self.path(number), &error)))
    }

    /// A file with this head, which is durable.
    fn make_segment(&self, number: u64, head: &[u8]) -> io::Result<Box<dyn DiskFile>> {
        let (new, path) = (self.root.join(NEW), self.path(number));
        // Of a run that has died, or of an attempt that has failed.
        self.disk.unlink_abandoned(&new)?;
        let mut file = self.disk.create(&new)?;
        file.write(head)?;
        file.sync()?;
        self.disk.rename(&new, &path)?;
        self.disk.sync_dir(&self.root)?;
        Ok(file)
    }

    /// Reads the head of a segment, which has a name, so it is whole.
    pub(super) fn open_segment(&self, number: u64, bytes: u64) -> Result<(Segment, Head)> {
        let path = self.path(number);
        let salt = self.disk.read(&path, Some(0..HEAD_BYTES)).ok().and_then(|b| Frame::head(&b));
        let salt = salt.ok_or_else(|| self.damaged(number, 0))?.salt;
        let unread = Segment { number, salt, first: 0, offset: 0, begin: 0, head: 0, bytes };
        let (frame, read) = self.frame(&unread, 0)?;
        let head: Head = serde_json::from_slice(&read[HEAD_BYTES as usize..])
            .map_err(|_| self.damaged(number, 0))?;
        if head.format != FORMAT {
            let (object, message) =
                (path.display().to_string(), format!("it has the format {}", head.format));
            return Err(Error::Foreign { object, message, program: "another".into() });
        }
        let (first, offset, begin) = (frame.first, frame.offset, head.begin);
        let segment = Segment { first, offset, begin, head: read.len() as u64, ..unread };
        Ok((segment, head))
    }

    /// Makes a directory durable, with the directories above.
    pub(super) fn make_directory(&self, directory: &Path) -> io::Result<()> {
        let above = match directory.parent() {
            None => return Ok(()),
            Some(above) if above.as_os_str().is_empty() => Path::new("."),
            Some(above) => above,
        };
        if above == directory {
            return Ok(());
        }
        // Also if the directory exists: its maker may have been killed before this step.
        self.make_directory(above)?;
        match self.disk.make_dir(directory) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        match self.disk.sync_dir(above) {
            // A directory of others need not be one that this user can open.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
            synced => synced,
        }
    }
}
