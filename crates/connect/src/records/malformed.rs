//! Malformed records as rows: their bytes, places and faults.

use std::sync::Arc;

use arrow::array::RecordBatch;
use memchr::memchr_iter;
use millstream_contract::Result;
use millstream_contract::plan::malformed_rows;
use millstream_contract::table::{Decoded, Failing, LeftOut, Raw};

use super::{Block, Cut, Decode, MessageBounds, RecordFormat};
use crate::options::OnError;

/// How far to look for the end of a record at first.
const LOOK_BYTES: usize = 4 << 10;

/// Decodes a block, with the treatment of malformed records that the format asks for.
pub(crate) fn decode_as(
    format: Arc<dyn RecordFormat>,
    decode: Arc<dyn Decode>,
    block: Block,
) -> Result<Decoded> {
    match format.on_error() {
        OnError::Fail => decode.decode(&block),
        OnError::Skip => {
            let decoded = decode.decode(&block)?;
            Ok(Decoded { failing: Failing::LeftOut, ..decoded })
        }
        OnError::Keep => decode_keeping(format, decode, block),
    }
}

/// Decodes a block and keeps the malformed records that are left out of it. `decode` leaves them
/// out. Where there are any, the records are decoded a second time, one by one: what is wrong with
/// one is said without a look at the next, so it does not depend on where blocks end.
fn decode_keeping(
    format: Arc<dyn RecordFormat>,
    decode: Arc<dyn Decode>,
    block: Block,
) -> Result<Decoded> {
    let mut decoded = decode.decode(&block)?;
    let mut one_by_one = OneByOne { format, decode, block, malformed_before: Vec::new() };
    if decoded.left_out > 0 {
        decoded.malformed = Some(one_by_one.malformed()?);
    }
    decoded.failing = Failing::Kept(Box::new(one_by_one));
    Ok(decoded)
}

/// Decoder of a block record by record.
#[derive(Debug)]
struct OneByOne {
    format: Arc<dyn RecordFormat>,
    decode: Arc<dyn Decode>,
    block: Block,
    /// By malformed record, how many others stand before it.
    malformed_before: Vec<usize>,
}

impl OneByOne {
    /// Goes over the records: the bytes of each, and what comes of it.
    fn each(&self, visit: impl FnMut(&[u8], Decoded)) -> Result<()> {
        match &self.block.messages {
            None => self.each_line(visit),
            Some(messages) => self.each_message(messages, visit),
        }
    }

    fn each_message(
        &self,
        messages: &MessageBounds,
        mut visit: impl FnMut(&[u8], Decoded),
    ) -> Result<()> {
        for index in 0..messages.len() {
            let mut data = self.block.data[messages.range(index)].to_vec();
            data.push(b'\n');
            let one = Block::of_messages(data, messages.alone(index));
            let decoded = self.decode.decode(&one)?;
            visit(&messages.original(&self.block.data, index), decoded);
        }
        Ok(())
    }

    fn each_line(&self, mut visit: impl FnMut(&[u8], Decoded)) -> Result<()> {
        let Block { data, line, offset, .. } = &self.block;
        let (mut at, mut line) = (0, *line);
        while at < data.len() {
            let end = at + first_record(&*self.format, &data[at..]);
            let record = &data[at..end];
            let lines = memchr_iter(b'\n', record).count();
            let offset = offset + at as u64;
            let data = record.to_vec();
            let (offsets, too_long, messages) = (false, None, None);
            let one = Block { data, line, lines, offset, offsets, too_long, messages };
            visit(without_line_end(record), self.decode.decode(&one)?);
            (at, line) = (end, line + lines as u64);
        }
        Ok(())
    }

    /// Its malformed records.
    fn malformed(&mut self) -> Result<RecordBatch> {
        let mut raw: Vec<Vec<u8>> = Vec::new();
        let mut wrong: Vec<LeftOut> = Vec::new();
        let (mut rows, mut before) = (0, Vec::new());
        self.each(|record, decoded| {
            if let Some(left_out) = decoded.first_left_out {
                raw.push(record.to_vec());
                wrong.push(left_out);
                before.push(rows);
            }
            rows += decoded.batch.num_rows();
        })?;
        self.malformed_before = before;
        malformed_rows(&raw, &wrong)
    }
}

impl Raw for OneByOne {
    fn bytes_of(&self, rows: &[usize]) -> Result<Vec<Vec<u8>>> {
        let (mut row, mut rest, mut found) = (0, rows, Vec::with_capacity(rows.len()));
        self.each(|record, decoded| {
            if decoded.batch.num_rows() == 0 {
                return;
            }
            if rest.first() == Some(&row) {
                rest = &rest[1..];
                found.push(record.to_vec());
            }
            row += 1;
        })?;
        Ok(found)
    }

    fn malformed_before(&self) -> &[usize] {
        &self.malformed_before
    }
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
