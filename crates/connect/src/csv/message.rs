//! Messages of CSV: each holds a single record.
//!
//! The decoder indexes all messages of a block at once, as it does lines. This is right if each
//! message turns out to be one record: an open quote would take the next message into its record.
//! Otherwise every message is indexed alone, and the decoder reads the well-formed messages without
//! the malformed ones.

use millstream_contract::table::{Decoded, LeftOut};
use millstream_contract::{Error, Result};

use super::chunk::{CsvPlan, SKIP_HELP};
use super::index::{Index, index};
use crate::records::{Block, MessageBounds};

/// Content of a message.
enum MessageShape {
    Record,
    /// Comments alone, which are no fault.
    Comment,
    Malformed(Error),
}

/// Malformed messages among well-formed ones.
#[derive(Default)]
struct Malformed {
    count: u64,
    /// The first: how many well-formed messages stand before it, its number and its fault.
    first: Option<(usize, u64, Error)>,
}

impl CsvPlan {
    /// The records of a block of messages.
    pub(super) fn decode_messages(
        &self,
        block: &Block,
        messages: &MessageBounds,
    ) -> Result<Decoded> {
        let (found, wrong) = index(&block.data, &self.dialect, Some(self.fields), false);
        match wrong.is_none() && each_is_one_record(messages, &found) {
            true => Ok(self.decode_indexed(block, found, None)?.0),
            false => self.decode_apart(block, messages),
        }
    }

    /// As [`CsvPlan::decode_messages`], where some message is not one record.
    #[cold]
    fn decode_apart(&self, block: &Block, messages: &MessageBounds) -> Result<Decoded> {
        let mut data = Vec::with_capacity(block.data.len());
        let mut bounds = MessageBounds::with_capacity(messages.len());
        let mut malformed = Malformed::default();
        for number in 0..messages.len() {
            let text = without_line_end(&block.data[messages.range(number)]);
            match self.shape(text, messages.number(number)) {
                MessageShape::Record => {
                    data.extend_from_slice(text);
                    bounds.push(messages.number(number), data.len());
                    data.push(b'\n');
                }
                MessageShape::Comment => {}
                MessageShape::Malformed(error) => {
                    malformed.count += 1;
                    let before = bounds.len();
                    malformed.first.get_or_insert((before, messages.number(number), error));
                    if !self.dialect.skip_errors {
                        break;
                    }
                }
            }
        }
        self.decode_well_formed(&Block::of_messages(data, bounds), malformed)
    }

    /// Decodes well-formed messages, and counts the `malformed` messages between them.
    fn decode_well_formed(&self, block: &Block, malformed: Malformed) -> Result<Decoded> {
        let (found, wrong) = index(&block.data, &self.dialect, Some(self.fields), false);
        let is_right = |messages: &&_| wrong.is_none() && each_is_one_record(messages, &found);
        let Some(messages) = block.messages.as_deref().filter(is_right) else {
            return Err(Error::Internal("messages are records alone, and not together".into()));
        };
        // An error of an earlier message comes first.
        let (decoded, first_at) = self.decode_indexed(block, found, None)?;
        let Some((before, number, error)) = malformed.first else { return Ok(decoded) };
        let (place, message) = match error {
            Error::Data { place, message, .. } if self.dialect.skip_errors => (place, message),
            error => return Err(error),
        };
        let left_out = decoded.left_out + malformed.count;
        if first_at.is_some_and(|at| messages.index_of(at) < before) {
            return Ok(Decoded { left_out, ..decoded });
        }
        let rows: Vec<usize> = (0..decoded.batch.num_rows()).collect();
        let is_before = |row: &usize| {
            let places = decoded.places.as_ref();
            places.and_then(|places| places.offset(*row)).is_some_and(|other| other < number)
        };
        let before = rows.partition_point(is_before);
        let first_left_out = Some(LeftOut { place, message, before });
        Ok(Decoded { left_out, first_left_out, ..decoded })
    }

    /// Shape of message `number`.
    fn shape(&self, text: &[u8], number: u64) -> MessageShape {
        let mut bounds = MessageBounds::default();
        bounds.push(number, text.len());
        let block = Block::of_messages([text, b"\n"].concat(), bounds);
        let (found, wrong) = index(&block.data, &self.dialect, Some(self.fields), false);
        let messages = block.messages.as_deref();
        if wrong.is_none() && messages.is_some_and(|bounds| each_is_one_record(bounds, &found)) {
            return MessageShape::Record;
        }
        if let Some(wrong) = wrong {
            return MessageShape::Malformed(self.shape_error(&block, wrong));
        }
        let (at, message) = match found.rows() {
            0 if text.trim_ascii().is_empty() => (0, "the message is empty".to_string()),
            // One record outside the message is the empty line behind a comment's line end.
            0 | 1 => return MessageShape::Comment,
            records => {
                let message = format!("expected one record, found {records}");
                (found.field(1, 0).0, message)
            }
        };
        MessageShape::Malformed(self.error(&block, at, message, SKIP_HELP.to_string()))
    }
}

/// Whether record `i` lies in message `i`, for all of both.
fn each_is_one_record(messages: &MessageBounds, found: &Index) -> bool {
    let Some(last) = found.fields().checked_sub(1) else { return false };
    let is_within = |row: usize| {
        let (range, start) = (messages.range(row), found.field(row, 0).0);
        // Behind a comment and its line end there is an empty line, which is no record.
        let begins = range.contains(&start) || range.is_empty() && range.start == start;
        begins && found.field(row, last).1 <= range.end
    };
    found.rows() == messages.len() && (0..found.rows()).all(is_within)
}

fn without_line_end(text: &[u8]) -> &[u8] {
    match text.strip_suffix(b"\n") {
        Some(line) => line.strip_suffix(b"\r").unwrap_or(line),
        None => text,
    }
}
