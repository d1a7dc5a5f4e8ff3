//! Malformed records as rows: their bytes, where they stand, and what is wrong with them.

use std::sync::Arc;

use arrow::array::{ArrayRef, BinaryArray, RecordBatch, StringArray};
use memchr::memchr_iter;
use millstream_contract::plan::malformed_schema;
use millstream_contract::table::{Decoded, LeftOut};
use millstream_contract::{Error, Result};

use super::{Block, Cut, Decode, RecordFormat};

/// How far to look for the end of a record at first.
const LOOK_BYTES: usize = 4 << 10;

/// Decodes a block and keeps the malformed records that are left out of it. `decode` leaves them
/// out. Where there are any, the records are decoded a second time, one by one: what is wrong with
/// one is said without a look at the next, so it does not depend on where blocks end.
pub(super) fn decode_keeping(
    format: &dyn RecordFormat,
    decode: &dyn Decode,
    block: &Block,
) -> Result<Decoded> {
    let mut decoded = decode.decode(block)?;
    if decoded.left_out > 0 {
        decoded.malformed = Some(malformed(format, decode, block)?);
    }
    Ok(decoded)
}

/// The malformed records of a block.
fn malformed(format: &dyn RecordFormat, decode: &dyn Decode, block: &Block) -> Result<RecordBatch> {
    let mut raw: Vec<&[u8]> = Vec::new();
    let mut wrong: Vec<LeftOut> = Vec::new();
    let (mut at, mut line) = (0, block.line);
    while at < block.data.len() {
        let end = at + first_record(format, &block.data[at..]);
        let record = &block.data[at..end];
        let lines = memchr_iter(b'\n', record).count();
        let offset = block.offset + at as u64;
        let one = Block { data: record.to_vec(), line, lines, offset, offsets: false };
        let decoded = decode.decode(&one)?;
        if let Some(left_out) = decoded.first_left_out {
            raw.push(without_line_end(record));
            wrong.push(left_out);
        }
        (at, line) = (end, line + lines as u64);
    }
    let columns: Vec<ArrayRef> = vec![
        Arc::new(BinaryArray::from_iter_values(raw)),
        Arc::new(StringArray::from_iter_values(wrong.iter().map(|wrong| &wrong.place))),
        Arc::new(StringArray::from_iter_values(wrong.iter().map(|wrong| &wrong.message))),
    ];
    RecordBatch::try_new(malformed_schema(), columns)
        .map_err(|error| Error::Internal(format!("malformed records as rows: {error}")))
}

/// Bytes of the first record of what begins and ends with whole ones.
fn first_record(format: &dyn RecordFormat, data: &[u8]) -> usize {
    let mut look = LOOK_BYTES;
    while look < data.len() {
        if let Cut::At(end) = format.cut(&data[..look], false, 1) {
            return end;
        }
        look = look.saturating_mul(2);
    }
    match format.cut(data, true, 1) {
        // Nothing of no length, or this would never end.
        Cut::At(end) if end > 0 => end,
        _ => data.len(),
    }
}

fn without_line_end(record: &[u8]) -> &[u8] {
    let record = record.strip_suffix(b"\n").unwrap_or(record);
    record.strip_suffix(b"\r").unwrap_or(record)
}
