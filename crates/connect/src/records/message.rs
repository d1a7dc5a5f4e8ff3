//! Messages in a block: each is a record by itself, of any bytes, line feeds included.

use std::ops::Range;
use std::sync::Arc;

use memchr::{memchr_iter, memrchr};
use millstream_contract::table::Places;

use crate::input::Name;

/// Bounds and numbers of the messages that a block's bytes hold one after the other.
///
/// A line feed stands behind each message, so the decoders of lines can read the block.
#[derive(Debug, Clone, Default)]
pub(crate) struct MessageBounds {
    /// By message, the offset of the line feed behind it.
    ends: Vec<u32>,
    /// By message, the number in the source, ascending.
    numbers: Vec<u64>,
    /// Offsets in messages where a line feed was replaced, ascending; see
    /// [`MessageBounds::join_lines`].
    replaced: Vec<u32>,
}

impl MessageBounds {
    pub(crate) fn with_capacity(messages: usize) -> MessageBounds {
        let (ends, numbers) = (Vec::with_capacity(messages), Vec::with_capacity(messages));
        MessageBounds { ends, numbers, replaced: Vec::new() }
    }

    /// Adds message `number`, which ends at offset `end`. A block is far below 4 GiB.
    pub(crate) fn push(&mut self, number: u64, end: usize) {
        self.ends.push(end as u32);
        self.numbers.push(number);
    }

    /// Number of messages.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Offsets of message `index`, without the line feed behind it.
    pub(crate) fn range(&self, index: usize) -> Range<usize> {
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before] as usize + 1);
        start..self.ends[index] as usize
    }

    /// Number of message `index` in its source.
    pub(crate) fn number(&self, index: usize) -> u64 {
        self.numbers[index]
    }

    /// Index of the message at offset `at`, or of the last message.
    pub(crate) fn index_of(&self, at: usize) -> usize {
        let before = self.ends.partition_point(|end| (*end as usize) < at);
        before.min(self.len().saturating_sub(1))
    }

    /// Makes each message a single line, for a format in which a carriage return means the same as
    /// a line feed: JSON, where both are white space, and neither may stand in a string.
    pub(crate) fn join_lines(&mut self, data: &mut [u8]) {
        if memchr_iter(b'\n', data).count() == self.len() {
            return;
        }
        let mut ends = self.ends.iter().map(|end| *end as usize).peekable();
        let within = memchr_iter(b'\n', data).filter(|at| ends.next_if_eq(at).is_none());
        self.replaced = within.map(|at| at as u32).collect();
        for at in &self.replaced {
            data[*at as usize] = b'\r';
        }
    }

    /// Message `index` alone, with the bytes that it has in `data`.
    pub(super) fn alone(&self, index: usize) -> MessageBounds {
        let range = self.range(index);
        let replaced = self.replaced_in(&range).iter().map(|at| *at - range.start as u32);
        MessageBounds {
            ends: vec![range.len() as u32],
            numbers: vec![self.numbers[index]],
            replaced: replaced.collect(),
        }
    }

    /// Message `index` as it was sent.
    pub(super) fn original(&self, data: &[u8], index: usize) -> Vec<u8> {
        let range = self.range(index);
        let mut bytes = data[range.clone()].to_vec();
        for at in self.replaced_in(&range) {
            bytes[*at as usize - range.start] = b'\n';
        }
        bytes
    }

    /// Place of offset `at` in `data`: the message, and the column in it, in characters from 1. A
    /// message of several lines has line numbers, too.
    pub(super) fn place(&self, source: &str, data: &[u8], at: usize) -> String {
        if self.len() == 0 {
            return source.to_string();
        }
        let index = self.index_of(at);
        let range = self.range(index);
        let message = self.original(data, index);
        let before = &message[..at.saturating_sub(range.start).min(message.len())];
        let line_start = memrchr(b'\n', before).map_or(0, |line_feed| line_feed + 1);
        // Every byte that does not continue a character starts one.
        let column = before[line_start..].iter().filter(|byte| **byte & 0xc0 != 0x80).count() + 1;
        let message = self.place_of(source, index);
        match memchr_iter(b'\n', before).count() {
            0 => format!("{message}: column {column}"),
            lines => format!("{message}: line {}, column {column}", lines + 1),
        }
    }

    /// Place of message `index`.
    pub(crate) fn place_of(&self, source: &str, index: usize) -> String {
        format!("{source}, offset {}", self.numbers[index])
    }

    fn replaced_in(&self, range: &Range<usize>) -> &[u32] {
        let before = |offset: usize| self.replaced.partition_point(|at| (*at as usize) < offset);
        &self.replaced[before(range.start)..before(range.end)]
    }

    fn bytes(&self) -> usize {
        let offsets = self.ends.capacity() + self.replaced.capacity();
        offsets * size_of::<u32>() + self.numbers.capacity() * size_of::<u64>()
    }
}

/// Messages of a batch's records.
#[derive(Debug)]
pub(super) struct MessagePlaces {
    source: Name,
    messages: Arc<MessageBounds>,
    /// By row, the index of its message; `None` if each message is a row.
    of_row: Option<Box<[u32]>>,
}

impl MessagePlaces {
    /// Places of records that start at these offsets of the block.
    pub(super) fn new(source: &Name, messages: &Arc<MessageBounds>, starts: &[u32]) -> Self {
        let of_row = (starts.len() != messages.len()).then(|| {
            let mut index = 0;
            let of_start = |start: &u32| {
                while messages.ends.get(index).is_some_and(|end| end < start) {
                    index += 1;
                }
                index as u32
            };
            starts.iter().map(of_start).collect()
        });
        MessagePlaces { source: source.clone(), messages: messages.clone(), of_row }
    }

    fn index(&self, row: usize) -> Option<usize> {
        let index = match &self.of_row {
            None => row,
            Some(of_row) => *of_row.get(row)? as usize,
        };
        (index < self.messages.len()).then_some(index)
    }
}

impl Places for MessagePlaces {
    fn place(&self, row: usize) -> String {
        match self.index(row) {
            Some(index) => self.messages.place_of(&self.source, index),
            None => self.source.to_string(),
        }
    }

    fn offset(&self, row: usize) -> Option<u64> {
        self.index(row).map(|index| self.messages.number(index))
    }

    fn bytes(&self) -> usize {
        let of_row = self.of_row.as_deref().map_or(0, size_of_val);
        size_of::<MessagePlaces>() + of_row + self.messages.bytes()
    }
}
