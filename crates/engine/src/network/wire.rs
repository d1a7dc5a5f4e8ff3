//! The wire format of messages between the processes of a job: a head of fixed length, and a body.
//!
//! The deltas of a stage go from a process to a leader, over channels of the stage. A delta
//! consists of passed rows, as they come; then, for every segment, its arena, if any, and its rows,
//! in pieces of a slot; then a [`Kind::Delta`]. Small segments are packed: several share a message.
//! All other messages go from process to process.
//! Peers hold the job's token and keep the channel's protocol. Nevertheless, their messages are
//! checked before use.

use crate::error::{Error, Result};

/// Bytes of a head: a cache line, so that rows behind the head begin at a cache line.
pub(crate) const HEAD_BYTES: usize = 64;

/// Kinds of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// Words of the arena that the next rows refer to; `count` of all, of which `number` came
    /// before.
    Arena = 1,
    /// `count` rows of the slice `rows_of`.
    Rows,
    /// Rows that are passed through: keys and arguments as they are exchanged
    /// ([`crate::exchange`]), section after section, `count` words. They are part of the next
    /// delta.
    Passed,
    /// Small segments as a whole, section after section ([`packed_head`]), `count` words.
    Packed,
    /// The end of epoch `number` of process `id`, whose rows came before in `count` messages, and
    /// the watermark that the process has reached. All rows before cut `rows_of` have been shipped.
    /// The body holds the last packed segments.
    Delta,
    /// Leader `id` has merged a delta with rows ([`MERGED`]): its memory is free. And, perhaps
    /// later, a further delta may come ([`GO_ON`]): the leader is not behind with firing. Merging
    /// `count` rows took `number` nanoseconds, taking in `rows_of` passed rows `watermark`.
    Credit,
    /// Chunk `number` of split `id` has been prepared: its greatest `watermark` and number of
    /// records.
    Stamp,
    /// Split `id` has ended after `count` chunks.
    Ended,
    /// The process is at `watermark` with source `id`, and perhaps [`IDLE`].
    Progress,
    /// Rows of leader `id` for an `output`: of its input `count`, of the window
    /// `rows_of`.
    WindowRows,
    /// Rows for an `output` of part `count` of chunk `number` of split `id`.
    BatchRows,
    /// Behind these rows of part `count` of chunk `number` of split `id` there is a record that
    /// cannot be evaluated: why not. The rows come next.
    BatchError,
    /// Leader `id` has fired everything of stage `count` up to `watermark`, as far as it is for an
    /// `output`; from the coordinator: all leaders have.
    Fired,
    /// From the coordinator: all rows for an `output` before chunk `number` of split `id` have
    /// been written.
    Written,
    /// The process has no room for more rows of records of an `output` until chunk `number` of
    /// split `id` has been written, which is another's.
    Awaited,
    /// From the coordinator: an `output` needs no more rows; [`LAST`]: no output needs more.
    Enough,
    /// Nothing more is to be read, except what has been read elsewhere.
    Drain,
    /// The process has stopped to read split `id`, which all read, after `count` chunks. If others
    /// have read more, it reads as many.
    ReadTo,
    /// From the coordinator: cut `number` begins, and cut `count` is the last durable one.
    Cut,
    /// How many chunks of each split are before cut `number`: as many as the process has taken, or,
    /// from the coordinator, as many as any process. The body holds a word for each split.
    CutAt,
    /// The process stands at cut `number` and has set its state aside. The body says where.
    Saved,
    /// From the coordinator: the job goes on behind cut `number`.
    EndCut,
    /// The process's part of cut `number` is durable: the body names it.
    PartSaved,
    /// The process has nothing left to do but to take part in cuts; from the coordinator: no
    /// process has, and no cut begins any more.
    Over,
    /// All workers of the process have the state that the job before has saved.
    Restored,
    /// From the coordinator: process `number` is to read the spare split `id`. The body describes
    /// the split.
    Join,
    /// The body is the word of the senders of source `id` in this process.
    Senders,
    /// To the coordinator: the body is a notice for the user.
    Notice,
}

impl Kind {
    fn from_byte(byte: u8) -> Option<Kind> {
        use Kind::*;
        let all = [
            Arena, Rows, Passed, Packed, Delta, Credit, Stamp, Ended, Progress, WindowRows,
            BatchRows, BatchError, Fired, Written, Awaited, Enough, Drain, ReadTo, Cut, CutAt,
            Saved, EndCut, PartSaved, Over, Restored, Join, Senders, Notice,
        ];
        all.into_iter().find(|kind| *kind as u8 == byte)
    }
}

/// More of this message's body follows.
pub(crate) const MORE: u8 = 1;
/// The last rows of a window from this leader, or the last part of a chunk.
pub(crate) const LAST: u8 = 2;
/// A delta has rows, so that credit is to be returned for it.
pub(crate) const CREDITED: u8 = 4;
/// The process waits for sources that have had nothing for their idle time.
pub(crate) const IDLE: u8 = 8;

/// A delta has been merged.
pub(crate) const MERGED: u8 = 16;
/// For a merged delta, a further delta may come.
pub(crate) const GO_ON: u8 = 32;
/// The cut may have new splits; or it has, and is durable.
pub(crate) const JOINS: u8 = 64;

/// Head of a message. Fields that a kind does not name are 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) kind: Kind,
    pub(crate) flags: u8,
    /// Of a credit: its stage. Messages over a stage's own channels need no number.
    pub(crate) stage: u16,
    /// Of messages about result rows: the output.
    pub(crate) output: u16,
    pub(crate) id: u32,
    pub(crate) count: u64,
    pub(crate) number: u64,
    /// Of rows: the name of their slice or window. Of a delta: the last cut.
    pub(crate) rows_of: u64,
    pub(crate) watermark: i64,
}

impl Head {
    pub(crate) fn new(kind: Kind) -> Head {
        let (flags, stage, output, id, count, number, rows_of, watermark) = Default::default();
        Head { kind, flags, stage, output, id, count, number, rows_of, watermark }
    }

    pub(crate) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    pub(crate) fn encode(&self) -> [u8; HEAD_BYTES] {
        let mut bytes = [0; HEAD_BYTES];
        (bytes[0], bytes[1]) = (self.kind as u8, self.flags);
        bytes[2..4].copy_from_slice(&self.stage.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.id.to_le_bytes());
        let words = [self.count, self.number, self.rows_of, self.watermark as u64];
        for (word, place) in words.iter().zip(bytes[8..].chunks_exact_mut(8)) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes[40..42].copy_from_slice(&self.output.to_le_bytes());
        bytes
    }

    /// Splits a message into head and body.
    pub(crate) fn decode(message: &[u8]) -> Result<(Head, &[u8])> {
        let malformed = |what: &str| Error::Internal(format!("a message that {what}"));
        let (head, body) = message
            .split_first_chunk::<HEAD_BYTES>()
            .ok_or_else(|| malformed("is shorter than its head"))?;
        let kind = Kind::from_byte(head[0]).ok_or_else(|| malformed("is of an unknown kind"))?;
        let word = |at: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&head[at..at + 8]);
            u64::from_le_bytes(bytes)
        };
        let head = Head {
            kind,
            flags: head[1],
            stage: u16::from_le_bytes([head[2], head[3]]),
            output: u16::from_le_bytes([head[40], head[41]]),
            id: (word(0) >> 32) as u32,
            count: word(8),
            number: word(16),
            rows_of: word(24),
            watermark: word(32) as i64,
        };
        Ok((head, body))
    }
}

/// Words before a packed segment: its slice; in the lower half of the second word its number of
/// rows, and in the upper half the words of the arena, which come first.
pub(crate) fn packed_head(slice: u64, rows: usize, arena_words: usize) -> [u64; 2] {
    [slice, (arena_words as u64) << 32 | rows as u64]
}

/// The next packed segment of rows of so many words: its slice, arena and rows, and the words
/// behind the segment. `None` at the end.
pub(crate) fn packed(words: &[u64], row_words: usize) -> Result<Option<[&[u64]; 4]>> {
    let Some((slice, rest)) = words.split_at_checked(1) else { return Ok(None) };
    let malformed = || Error::Internal(format!("no packed segment in {} words", words.len()));
    let (count, rest) = rest.split_first().ok_or_else(malformed)?;
    let (rows, arena_words) = ((*count & 0xFFFF_FFFF) as usize, (*count >> 32) as usize);
    let (arena, rest) = rest.split_at_checked(arena_words).ok_or_else(malformed)?;
    let (rows, rest) =
        rest.split_at_checked(rows.saturating_mul(row_words)).ok_or_else(malformed)?;
    Ok(Some([slice, arena, rows, rest]))
}

/// The words of a body that holds words.
pub(crate) fn words(body: &[u8]) -> Result<&[u64]> {
    // SAFETY: any bytes are words.
    match unsafe { body.align_to::<u64>() } {
        ([], words, []) => Ok(words),
        _ => Err(Error::Internal("a message that is not made of whole words".into())),
    }
}

/// The words of a body to be written; `None` if the body is not aligned.
pub(crate) fn words_mut(body: &mut [u8]) -> Option<&mut [u64]> {
    // SAFETY: any bytes are words.
    match unsafe { body.align_to_mut::<u64>() } {
        ([], words, _) => Some(words),
        _ => None,
    }
}

/// Words as a body.
pub(crate) fn bytes(words: &[u64]) -> &[u8] {
    // SAFETY: words are readable as bytes.
    unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), size_of_val(words)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_come_back() {
        for byte in 0..=255 {
            let Some(kind) = Kind::from_byte(byte) else { continue };
            let head = Head {
                kind,
                flags: 5,
                stage: u16::MAX - 2,
                output: 258,
                id: u32::MAX - 1,
                count: 3,
                number: u64::MAX,
                rows_of: u64::MAX - 5,
                watermark: -7,
            };
            let mut message = head.encode().to_vec();
            message.extend([1, 2, 3]);
            assert_eq!(Head::decode(&message).unwrap(), (head, &[1, 2, 3][..]));
            assert!(Head::decode(&message[..HEAD_BYTES - 1]).is_err());
            message[0] = 0;
            assert!(Head::decode(&message).is_err());
        }
        assert_eq!(
            (1..=255).filter(|byte| Kind::from_byte(*byte).is_some()).count(),
            Kind::Notice as usize
        );
    }
}
