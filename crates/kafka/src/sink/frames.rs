//! Numbered rows as bytes. A frame has some rows, and stands behind its length and checksum:
//!
//! ```text
//! bytes u32, crc32c u32 | first row's number u64, rows u32
//! of a row: partition i32, timestamp i64, key, value, headers u32, of a header: name, value
//! of bytes: length u32, or u32::MAX for NULL, bytes
//! ```

use bytes::{Buf, BufMut, TryGetError};

use super::numbered::Row;
use crate::client::encode::NewRecord;

/// Bytes of length and checksum.
pub(super) const HEAD_BYTES: u64 = 8;
const NULL: u32 = u32::MAX;

/// A frame that is being filled.
#[derive(Debug, Default)]
pub(super) struct Frame {
    first: u64,
    count: u32,
    rows: Vec<u8>,
}

impl Frame {
    /// A frame whose first row has this number.
    pub(super) fn new(first: u64) -> Frame {
        Frame { first, count: 0, rows: Vec::new() }
    }

    pub(super) fn bytes(&self) -> usize {
        self.rows.len()
    }

    pub(super) fn push(&mut self, (partition, record): &Row) {
        let rows = &mut self.rows;
        rows.put_i32(*partition);
        rows.put_i64(record.timestamp);
        put(rows, record.key.as_deref());
        put(rows, record.value.as_deref());
        rows.put_u32(record.headers.len() as u32);
        for (name, value) in &record.headers {
            put(rows, Some(name.as_bytes()));
            put(rows, value.as_deref());
        }
        self.count += 1;
    }

    /// With length and checksum.
    pub(super) fn whole(&self) -> Vec<u8> {
        let mut body = Vec::with_capacity(self.rows.len() + 20);
        body.put_u64(0);
        body.put_u64(self.first);
        body.put_u32(self.count);
        body.extend_from_slice(&self.rows);
        let (length, checksum) = (body.len() - HEAD_BYTES as usize, crc32c::crc32c(&body[8..]));
        body[..4].copy_from_slice(&(length as u32).to_be_bytes());
        body[4..8].copy_from_slice(&checksum.to_be_bytes());
        body
    }
}

fn put(out: &mut Vec<u8>, bytes: Option<&[u8]>) {
    match bytes {
        None => out.put_u32(NULL),
        Some(bytes) => {
            out.put_u32(bytes.len() as u32);
            out.extend_from_slice(bytes);
        }
    }
}

/// The length and the checksum of a frame, from the bytes before it.
pub(super) fn head(mut bytes: &[u8]) -> Option<(u64, u32)> {
    Some((u64::from(bytes.try_get_u32().ok()?), bytes.try_get_u32().ok()?))
}

/// The number of the first row of a frame, and its rows; `None` if the frame is damaged.
pub(super) fn rows(body: &[u8], checksum: u32) -> Option<(u64, Vec<Row>)> {
    if crc32c::crc32c(body) != checksum {
        return None;
    }
    read(body).ok()
}

fn read(mut from: &[u8]) -> Result<(u64, Vec<Row>), TryGetError> {
    let (first, count) = (from.try_get_u64()?, from.try_get_u32()?);
    let mut rows = Vec::new();
    for _ in 0..count {
        let partition = from.try_get_i32()?;
        let timestamp = from.try_get_i64()?;
        let (key, value) = (get(&mut from)?, get(&mut from)?);
        let mut headers = Vec::new();
        for _ in 0..from.try_get_u32()? {
            let name = get(&mut from)?.unwrap_or_default();
            headers.push((String::from_utf8_lossy(&name).into_owned(), get(&mut from)?));
        }
        rows.push((partition, NewRecord { timestamp, key, value, headers }));
    }
    Ok((first, rows))
}

fn get(from: &mut &[u8]) -> Result<Option<Vec<u8>>, TryGetError> {
    let length = from.try_get_u32()?;
    if length == NULL {
        return Ok(None);
    }
    let requested = length as usize;
    let (bytes, rest) =
        from.split_at_checked(requested).ok_or(TryGetError { requested, available: from.len() })?;
    *from = rest;
    Ok(Some(bytes.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(number: i64) -> Row {
        let some = |text: &str| Some(text.as_bytes().to_vec());
        let headers = vec![("a".to_string(), some("x")), ("ä".to_string(), None)];
        let key = (number % 2 == 0).then(|| b"key".to_vec());
        let value = if number == 1 { None } else { some(&"v".repeat(number as usize)) };
        (number as i32, NewRecord { timestamp: -number, key, value, headers })
    }

    fn frame() -> Vec<u8> {
        let mut frame = Frame::new(7);
        (0..4).for_each(|number| frame.push(&row(number)));
        frame.whole()
    }

    fn read_back(bytes: &[u8]) -> Option<(u64, Vec<Row>)> {
        let (length, checksum) = head(bytes)?;
        let body = bytes.get(HEAD_BYTES as usize..)?.get(..length as usize)?;
        rows(body, checksum)
    }

    #[test]
    fn rows_are_read_as_they_were_written() {
        assert_eq!(read_back(&frame()), Some((7, (0..4).map(row).collect())));
        assert_eq!(read_back(&Frame::new(3).whole()), Some((3, Vec::new())));
    }

    #[test]
    fn a_frame_with_any_other_bit_or_length_is_damaged() {
        let whole = frame();
        for bit in 0..whole.len() * 8 {
            let mut other = whole.clone();
            other[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(read_back(&other), None, "bit {bit}");
        }
        for length in 0..whole.len() {
            assert_eq!(read_back(&whole[..length]), None, "{length} bytes");
        }
    }
}
