//! Batches of records (version 2 of the format, KIP-98) as a broker stores and sends them.
//!
//! A response holds batches one after the other, the last of them perhaps cut off. The head of a
//! batch says which offsets the batch covers, so batches can be handed out as they are, and be
//! decoded elsewhere. Compaction takes records out of a batch and leaves the head's offsets.

use bytes::Bytes;

pub(crate) use super::unpack::Flaw;
use super::unpack::{Packing, unpacked};

/// Bytes of a batch before its records.
const HEAD_BYTES: usize = 61;
/// Bytes before those that the field of the length counts.
const LENGTH_END: usize = 12;
/// Where the checksum stands, and where the bytes begin of which it is made.
const CHECKSUM: usize = 17;
const CHECKED: usize = 21;

/// The head of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) base_offset: i64,
    /// All bytes of the batch.
    pub(crate) bytes: usize,
    pub(crate) leader_epoch: i32,
    attributes: i16,
    last_offset_delta: i32,
    base_timestamp: i64,
    max_timestamp: i64,
    pub(crate) producer_id: i64,
    pub(crate) records: i32,
}

impl Head {
    /// The head of the batch that `data` begins with; `None` if the batch is cut off.
    pub(crate) fn read(data: &[u8]) -> Result<Option<Head>, Flaw> {
        let Some(head) = data.get(..HEAD_BYTES) else { return Ok(None) };
        let length = i32::from_be_bytes(array(head, 8));
        let bytes = usize::try_from(length).ok().map(|length| length + LENGTH_END);
        let bytes = bytes.filter(|bytes| *bytes >= HEAD_BYTES);
        let bytes = bytes.ok_or_else(|| format!("a batch has a length of {length}"))?;
        let magic = head[16];
        if magic != 2 {
            return Err(format!(
                "expected batches of format 2, found format {magic}, which brokers before 0.11 wrote"
            ));
        }
        if data.len() < bytes {
            return Ok(None);
        }
        let found = Head {
            base_offset: i64::from_be_bytes(array(head, 0)),
            bytes,
            leader_epoch: i32::from_be_bytes(array(head, 12)),
            attributes: i16::from_be_bytes(array(head, 21)),
            last_offset_delta: i32::from_be_bytes(array(head, 23)),
            base_timestamp: i64::from_be_bytes(array(head, 27)),
            max_timestamp: i64::from_be_bytes(array(head, 35)),
            producer_id: i64::from_be_bytes(array(head, 43)),
            records: i32::from_be_bytes(array(head, 57)),
        };
        if found.base_offset < 0 || found.last_offset_delta < 0 || found.records < 0 {
            return Err("a batch has a negative offset or number of records".into());
        }
        Ok(Some(found))
    }

    /// The offset behind the batch.
    pub(crate) fn end(&self) -> i64 {
        self.base_offset.saturating_add(i64::from(self.last_offset_delta) + 1)
    }

    /// Whether a transaction wrote it.
    pub(crate) fn is_transactional(&self) -> bool {
        self.attributes & 0x10 != 0
    }

    /// Whether it has the end of a transaction, and no records of users.
    pub(crate) fn is_control(&self) -> bool {
        self.attributes & 0x20 != 0
    }

    /// Whether times are those of the broker's log, not those of producers.
    pub(crate) fn is_log_append_time(&self) -> bool {
        self.attributes & 0x08 != 0
    }
}

/// Whether this control batch ends an aborted transaction.
pub(crate) fn is_abort(head: &Head, batch: &[u8]) -> Result<bool, Flaw> {
    let mut aborts = false;
    let data = batch.get(HEAD_BYTES..head.bytes).unwrap_or_default();
    each(head, data, |record| {
        // The key: a version, then the kind, of which 0 is an abort.
        if let Some([_, _, kind @ ..]) = record.key {
            aborts |= kind.get(..2) == Some(&[0, 0]);
        }
        Ok::<_, Flaw>(())
    })?;
    Ok(aborts)
}

/// A record within its batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Record<'a> {
    pub(crate) offset: i64,
    /// Milliseconds since the epoch.
    pub(crate) timestamp: i64,
    pub(crate) key: Option<&'a [u8]>,
    pub(crate) value: Option<&'a [u8]>,
    pub(crate) headers: Headers<'a>,
}

/// The headers of a record, not yet looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Headers<'a> {
    count: i64,
    data: &'a [u8],
}

impl<'a> Headers<'a> {
    /// Goes over names and values.
    pub(crate) fn each(
        self,
        mut visit: impl FnMut(&'a [u8], Option<&'a [u8]>),
    ) -> Result<(), Flaw> {
        let mut data = self.data;
        for _ in 0..self.count {
            let name = bytes(&mut data)?.ok_or("a header has no name")?;
            visit(name, bytes(&mut data)?);
        }
        Ok(())
    }
}

/// Checks a batch's checksum.
pub(crate) fn check(head: &Head, batch: &Bytes) -> Result<(), Flaw> {
    let expected = batch.get(CHECKSUM..CHECKED).map(|bytes| u32::from_be_bytes(array(bytes, 0)));
    let checked = batch.get(CHECKED..head.bytes).unwrap_or_default();
    match expected == Some(crc32c::crc32c(checked)) {
        true => Ok(()),
        false => Err("the batch's checksum is wrong: it was damaged on its way, or at rest".into()),
    }
}

/// The records of a batch, unpacked.
pub(crate) fn records(head: &Head, batch: &Bytes) -> Result<Bytes, Flaw> {
    let packed = batch.slice(HEAD_BYTES.min(batch.len())..head.bytes.min(batch.len()));
    match Packing::of(head.attributes & 0x07)? {
        None => Ok(packed),
        Some(packing) => unpacked(packing, &packed).map(Bytes::from),
    }
}

/// Goes over the unpacked records of a batch.
pub(crate) fn each<'a, E: From<Flaw>>(
    head: &Head,
    mut data: &'a [u8],
    mut visit: impl FnMut(Record<'a>) -> Result<(), E>,
) -> Result<(), E> {
    for _ in 0..head.records {
        let length = signed(&mut data)?;
        let record = usize::try_from(length).ok().and_then(|length| data.split_at_checked(length));
        let (mut record, rest) = record.ok_or_else(cut_off)?;
        data = rest;
        let (_, after) = record.split_at_checked(1).ok_or_else(cut_off)?;
        record = after;
        let timestamp = match head.is_log_append_time() {
            true => {
                signed(&mut record)?;
                head.max_timestamp
            }
            false => head.base_timestamp.saturating_add(signed(&mut record)?),
        };
        let offset = head.base_offset.saturating_add(signed(&mut record)?);
        let (key, value) = (bytes(&mut record)?, bytes(&mut record)?);
        let count = signed(&mut record)?;
        if count < 0 {
            return Err(E::from(format!("a record has {count} headers")));
        }
        visit(Record { offset, timestamp, key, value, headers: Headers { count, data: record } })?;
    }
    Ok(())
}

fn cut_off() -> Flaw {
    "a record ends outside of its batch".into()
}

/// Bytes with their length in front; a negative length is NULL.
fn bytes<'a>(data: &mut &'a [u8]) -> Result<Option<&'a [u8]>, Flaw> {
    let length = signed(data)?;
    if length < 0 {
        return Ok(None);
    }
    let split = usize::try_from(length).ok().and_then(|length| data.split_at_checked(length));
    let (found, rest) = split.ok_or_else(cut_off)?;
    *data = rest;
    Ok(Some(found))
}

/// A number of variable length, zigzag-encoded.
fn signed(data: &mut &[u8]) -> Result<i64, Flaw> {
    let mut value = 0u64;
    for (index, byte) in data.iter().take(10).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            *data = &data[index + 1..];
            return Ok((value >> 1) as i64 ^ -((value & 1) as i64));
        }
    }
    Err(cut_off())
}

/// `N` bytes from `at` on, which are there.
fn array<const N: usize>(data: &[u8], at: usize) -> [u8; N] {
    let mut found = [0; N];
    if let Some(bytes) = data.get(at..at + N) {
        found.copy_from_slice(bytes);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A batch by the layout of the format's description, written without the code above.
    fn batch(base: i64, records: &[(i64, Option<&str>, Option<&str>)], attributes: i16) -> Bytes {
        let zigzag = |value: i64| {
            let (mut value, mut out) = (((value << 1) ^ (value >> 63)) as u64, Vec::new());
            while value >= 0x80 {
                out.push(value as u8 | 0x80);
                value >>= 7;
            }
            out.push(value as u8);
            out
        };
        let text = |text: Option<&str>| match text {
            None => zigzag(-1),
            Some(text) => [zigzag(text.len() as i64), text.as_bytes().to_vec()].concat(),
        };
        let mut body = Vec::new();
        for (delta, key, value) in records {
            let one = [
                vec![0],
                zigzag(10 * delta),
                zigzag(*delta),
                text(*key),
                text(*value),
                zigzag(1),
                text(Some("h")),
                text(None),
            ]
            .concat();
            body.extend(zigzag(one.len() as i64));
            body.extend(one);
        }
        let last = records.iter().map(|(delta, ..)| *delta).max().unwrap_or(0) as i32;
        let mut checked = Vec::new();
        checked.extend(attributes.to_be_bytes());
        checked.extend(last.to_be_bytes());
        checked.extend(1_000i64.to_be_bytes());
        checked.extend(9_999i64.to_be_bytes());
        checked.extend(77i64.to_be_bytes());
        checked.extend(0i16.to_be_bytes());
        checked.extend((-1i32).to_be_bytes());
        checked.extend((records.len() as i32).to_be_bytes());
        checked.extend(body);
        let mut all = Vec::new();
        all.extend(base.to_be_bytes());
        all.extend((checked.len() as i32 + 9).to_be_bytes());
        all.extend(5i32.to_be_bytes());
        all.push(2);
        all.extend(crc32c::crc32c(&checked).to_be_bytes());
        all.extend(checked);
        all.into()
    }

    #[test]
    fn records_of_a_batch() {
        let data = batch(100, &[(0, Some("k"), Some("v")), (3, None, None)], 0);
        let head = Head::read(&data).unwrap().unwrap();
        assert_eq!((head.base_offset, head.end(), head.bytes), (100, 104, data.len()));
        assert_eq!((head.leader_epoch, head.producer_id), (5, 77));
        check(&head, &data).unwrap();
        let unpacked = records(&head, &data).unwrap();
        let mut found = Vec::new();
        each(&head, &unpacked, |record| {
            let mut names = Vec::new();
            record.headers.each(|name, value| names.push((name.to_vec(), value.is_none())))?;
            assert_eq!(names, [(b"h".to_vec(), true)]);
            let text = |bytes: Option<&[u8]>| bytes.map(|b| String::from_utf8(b.to_vec()).unwrap());
            found.push((record.offset, record.timestamp, text(record.key), text(record.value)));
            Ok::<_, Flaw>(())
        })
        .unwrap();
        let expected = [(100, 1_000, Some("k".into()), Some("v".into())), (103, 1_030, None, None)];
        assert_eq!(found, expected);
    }

    #[test]
    fn times_of_the_log_are_those_of_the_batch() {
        let data = batch(0, &[(0, None, None)], 0x08);
        let head = Head::read(&data).unwrap().unwrap();
        let unpacked = records(&head, &data).unwrap();
        each(&head, &unpacked, |record| {
            assert_eq!(record.timestamp, 9_999);
            Ok::<_, Flaw>(())
        })
        .unwrap();
    }

    #[test]
    fn the_end_of_a_transaction() {
        let (abort, commit) = ("\0\0\0\0", "\0\0\0\u{1}");
        for (key, expected) in [(abort, true), (commit, false)] {
            let data = batch(7, &[(0, Some(key), Some("x"))], 0x30);
            let head = Head::read(&data).unwrap().unwrap();
            assert!(head.is_control() && head.is_transactional());
            assert_eq!(is_abort(&head, &data), Ok(expected));
        }
    }

    #[test]
    fn damaged_batches_are_refused() {
        let good = batch(100, &[(0, Some("key"), Some("value")), (1, None, Some("w"))], 0);
        for cut in 0..good.len() {
            assert_eq!(Head::read(&good[..cut]), Ok(None), "{cut} bytes are not a whole batch");
        }
        for at in 0..good.len() {
            for bit in 0..8 {
                let mut bad = good.to_vec();
                bad[at] ^= 1 << bit;
                let bad = Bytes::from(bad);
                // Nothing panics, and the checksum is wrong.
                let Ok(Some(head)) = Head::read(&bad) else { continue };
                if at >= CHECKSUM {
                    assert!(check(&head, &bad).is_err(), "byte {at}, bit {bit}");
                }
                if let Ok(unpacked) = records(&head, &bad) {
                    let _ = each(&head, &unpacked, |record| {
                        record.headers.each(|_, _| ())?;
                        Ok::<_, Flaw>(())
                    });
                }
            }
        }
    }
}
