//! Where records stand, for messages.

use std::sync::Arc;

use memchr::{memchr_iter, memrchr};
use millstream_contract::table::Places;

use super::message::MessagePlaces;
use super::{Block, MessageBounds, Unit};
use crate::input::Name;

/// Characters of a field that a message shows.
const SHOWN_CHARS_MAX: usize = 40;

/// The line of offset `at` in `data`, which starts on `first_line`.
pub(crate) fn line(data: &[u8], first_line: u64, at: usize) -> u64 {
    let before = &data[..at.min(data.len())];
    first_line + memchr_iter(b'\n', before).count() as u64
}

/// `path:line:column` of offset `at` in `data`, which starts on `first_line`. The column counts
/// characters from 1.
pub(crate) fn place(path: &str, data: &[u8], first_line: u64, at: usize) -> String {
    let before = &data[..at.min(data.len())];
    let line = line(data, first_line, at);
    let line_start = memrchr(b'\n', before).map_or(0, |newline| newline + 1);
    // Every byte that does not continue a character starts one.
    let column = before[line_start..].iter().filter(|byte| **byte & 0xc0 != 0x80).count() + 1;
    format!("{path}:{line}:{column}")
}

impl Block {
    /// Messages of a source, of which `data` holds the bytes.
    pub(crate) fn of_messages(data: Vec<u8>, messages: MessageBounds) -> Block {
        let lines = messages.len();
        let messages = Some(Arc::new(messages));
        Block { data, line: 1, lines, offset: 0, offsets: false, too_long: None, messages }
    }

    /// Container of each record.
    pub(crate) fn unit(&self) -> Unit {
        if self.messages.is_some() { Unit::Message } else { Unit::Line }
    }

    /// Place of offset `at`, for messages about faults.
    pub(crate) fn place(&self, path: &str, at: usize) -> String {
        match &self.messages {
            None => place(path, &self.data, self.line, at),
            Some(messages) => messages.place(path, &self.data, at),
        }
    }

    /// Places of the records that start at these offsets.
    pub(crate) fn places(&self, path: &Name, starts: &[u32]) -> Box<dyn Places> {
        match &self.messages {
            None => Box::new(Lines::new(path, self, starts)),
            Some(messages) => Box::new(MessagePlaces::new(path, messages, starts)),
        }
    }
}

/// A field for a message: short, and harmless on a terminal.
pub(crate) fn shown(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let mut shown: String =
        text.chars().take(SHOWN_CHARS_MAX).flat_map(char::escape_debug).collect();
    if text.chars().nth(SHOWN_CHARS_MAX).is_some() {
        shown.push('…');
    }
    // Quotes are no danger, and are easier to read as they are.
    shown.replace("\\\"", "\"").replace("\\'", "'")
}

/// The lines that a block's records begin on.
#[derive(Debug)]
struct Lines {
    path: Name,
    /// The block's first.
    first: u64,
    /// Per record, how many come before it in the block; `None` if each takes just one.
    before: Option<Vec<u32>>,
    /// The block's offset in the file and those of the records in the block, if they are wanted.
    offsets: Option<(u64, Box<[u32]>)>,
}

impl Lines {
    /// Of records that start at these offsets of the block.
    fn new(path: &Name, block: &Block, starts: &[u32]) -> Lines {
        let lines = block.lines + usize::from(block.data.last() != Some(&b'\n'));
        let before = (starts.len() != lines).then(|| {
            let (mut ends, mut before) = (memchr_iter(b'\n', &block.data).peekable(), 0);
            let mut count = |start: &u32| {
                while ends.next_if(|end| *end < *start as usize).is_some() {
                    before += 1;
                }
                before
            };
            starts.iter().map(&mut count).collect()
        });
        let offsets = block.offsets.then(|| (block.offset, starts.into()));
        Lines { path: path.clone(), first: block.line, before, offsets }
    }
}

impl Places for Lines {
    fn place(&self, row: usize) -> String {
        let before = match &self.before {
            None => row as u64,
            Some(before) => before.get(row).map_or(0, |before| u64::from(*before)),
        };
        format!("{}:{}", self.path, self.first + before)
    }

    fn offset(&self, row: usize) -> Option<u64> {
        let (block, starts) = self.offsets.as_ref()?;
        Some(block + u64::from(*starts.get(row)?))
    }

    fn bytes(&self) -> usize {
        let before = self.before.as_ref().map_or(0, |before| before.capacity() * size_of::<u32>());
        let offsets = self.offsets.as_ref().map_or(0, |(_, starts)| size_of_val(&**starts));
        size_of::<Lines>() + before + offsets
    }
}
