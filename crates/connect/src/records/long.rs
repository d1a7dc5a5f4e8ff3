//! Lines that are longer than a record may be, where malformed records are left out: the first
//! bytes are kept, to be shown, and what follows is passed over up to the line's end.

use memchr::memchr;
use millstream_contract::Result;
use millstream_contract::plan::malformed_rows;
use millstream_contract::table::{Decoded, LeftOut};

use super::{Block, Decode, Endless, RECORD_BYTES_MAX, RecordFormat, place};
use crate::options::OnError;

/// Bytes of such a line that are kept.
const HEAD_BYTES: usize = 64 << 10;

/// A line whose end is looked for.
pub(super) struct Long {
    head: Vec<u8>,
    left_out: LeftOut,
    /// Where it begins.
    pub(super) line: u64,
    pub(super) offset: u64,
}

impl Long {
    /// The line that this buffer begins with, if it is too long, and such are left out. Records
    /// that go on for several lines are not: what stands behind their first line is no record.
    pub(super) fn begin(
        format: &dyn RecordFormat,
        path: &str,
        buffer: &[u8],
        (offset, line): (u64, u64),
    ) -> Option<Long> {
        let too_long = buffer.len() >= RECORD_BYTES_MAX && memchr(b'\n', buffer).is_none();
        if !too_long || format.on_error() == OnError::Fail {
            return None;
        }
        let (at, message, _) = format.endless(buffer, Endless::TooLong);
        let left_out = LeftOut { place: place(path, buffer, line, at), message, before: 0 };
        let head = buffer.get(..HEAD_BYTES).unwrap_or(buffer).to_vec();
        Some(Long { head, left_out, line, offset })
    }

    /// A block of this line alone.
    pub(super) fn block(self) -> Block {
        let Long { head, left_out, line, offset } = self;
        let too_long = Some(left_out);
        Block { data: head, line, lines: 1, offset, offsets: false, too_long, messages: None }
    }
}

/// Result for a block with too long a line: no row, and one record left out.
pub(super) fn decode_too_long(
    decode: &dyn Decode,
    block: Block,
    left_out: LeftOut,
    keep: bool,
) -> Result<Decoded> {
    let Block { data: head, line, offset, offsets, .. } = block;
    let nothing =
        Block { data: vec![], line, lines: 0, offset, offsets, too_long: None, messages: None };
    let empty = decode.decode(&nothing)?;
    let malformed = keep.then(|| malformed_rows(&[head], std::slice::from_ref(&left_out)));
    Ok(Decoded {
        left_out: 1,
        first_left_out: Some(left_out),
        malformed: malformed.transpose()?,
        ..empty
    })
}
