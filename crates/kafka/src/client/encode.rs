//! Writing batches of records (format 2): the other side of [`super::batch`].

use bytes::{BufMut, Bytes, BytesMut};

use super::fault::{Fault, Outcome};
use super::unpack::Packing;

/// The identity of a producer, by which a broker notices repeated batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Writer {
    pub(crate) id: i64,
    pub(crate) epoch: i16,
    pub(crate) transactional: bool,
}

/// A record to be written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct NewRecord {
    /// Milliseconds since the epoch.
    pub(crate) timestamp: i64,
    pub(crate) key: Option<Vec<u8>>,
    pub(crate) value: Option<Vec<u8>>,
    pub(crate) headers: Vec<(String, Option<Vec<u8>>)>,
}

impl NewRecord {
    /// About its bytes in a batch.
    pub(crate) fn bytes(&self) -> usize {
        let of = |bytes: &Option<Vec<u8>>| bytes.as_ref().map_or(0, Vec::len);
        let header = |(name, value): &(String, Option<Vec<u8>>)| name.len() + of(value) + 10;
        let headers: usize = self.headers.iter().map(header).sum();
        of(&self.key) + of(&self.value) + headers + 24
    }
}

/// Writes one batch, the first record of which has this number among those of its writer and
/// partition.
pub(crate) fn batch(
    writer: Writer,
    sequence: i32,
    records: &[&NewRecord],
    packing: Option<Packing>,
) -> Outcome<Bytes> {
    let base = records.first().map_or(0, |record| record.timestamp);
    let greatest = records.iter().map(|record| record.timestamp).max().unwrap_or(base);
    let mut body = Vec::new();
    let mut one = Vec::new();
    for (delta, record) in records.iter().enumerate() {
        one.clear();
        one.push(0);
        signed(record.timestamp - base, &mut one);
        signed(delta as i64, &mut one);
        bytes(record.key.as_deref(), &mut one);
        bytes(record.value.as_deref(), &mut one);
        signed(record.headers.len() as i64, &mut one);
        for (name, value) in &record.headers {
            bytes(Some(name.as_bytes()), &mut one);
            bytes(value.as_deref(), &mut one);
        }
        signed(one.len() as i64, &mut body);
        body.extend_from_slice(&one);
    }
    let body = match packing {
        None => body,
        Some(packing) => packing
            .pack(&body)
            .map_err(|error| Fault::internal(format!("a batch cannot be compressed: {error}")))?,
    };
    let too_large = || Fault::internal("a batch is larger than 2 GiB".into());
    let count = i32::try_from(records.len()).map_err(|_| too_large())?;
    let length = i32::try_from(body.len() + 49).map_err(|_| too_large())?;
    let attributes =
        packing.map_or(0, Packing::number) | if writer.transactional { 0x10 } else { 0 };
    let mut out = BytesMut::with_capacity(body.len() + 61);
    out.put_i64(0);
    out.put_i32(length);
    out.put_i32(-1);
    out.put_u8(2);
    out.put_u32(0);
    out.put_i16(attributes);
    out.put_i32(count - 1);
    out.put_i64(base);
    out.put_i64(greatest);
    out.put_i64(writer.id);
    out.put_i16(writer.epoch);
    out.put_i32(sequence);
    out.put_i32(count);
    out.extend_from_slice(&body);
    let checksum = crc32c::crc32c(&out[21..]);
    out[17..21].copy_from_slice(&checksum.to_be_bytes());
    Ok(out.freeze())
}

fn bytes(bytes: Option<&[u8]>, out: &mut Vec<u8>) {
    match bytes {
        None => signed(-1, out),
        Some(bytes) => {
            signed(bytes.len() as i64, out);
            out.extend_from_slice(bytes);
        }
    }
}

/// A number of variable length, zigzag-encoded.
fn signed(value: i64, out: &mut Vec<u8>) {
    let mut left = ((value << 1) ^ (value >> 63)) as u64;
    while left >= 0x80 {
        out.push(left as u8 | 0x80);
        left >>= 7;
    }
    out.push(left as u8);
}

#[cfg(test)]
mod tests {
    use super::super::batch::{Flaw, Head, check, each, records};
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let long = "x".repeat(300);
        let new = |timestamp, key: Option<&str>, value: Option<&str>| NewRecord {
            timestamp,
            key: key.map(|key| key.as_bytes().to_vec()),
            value: value.map(|value| value.as_bytes().to_vec()),
            headers: vec![("h".into(), None), ("i".into(), Some(vec![1, 2]))],
        };
        let all =
            [new(1_000, Some("k"), Some(&long)), new(900, None, None), new(1_700, None, Some(""))];
        let all: Vec<&NewRecord> = all.iter().collect();
        let packings = [
            None,
            Some(Packing::Gzip),
            Some(Packing::Snappy),
            Some(Packing::Lz4),
            Some(Packing::Zstd),
        ];
        for packing in packings {
            let writer = Writer { id: 5, epoch: 1, transactional: true };
            let batch = batch(writer, 7, &all, packing).unwrap();
            let head = Head::read(&batch).unwrap().unwrap();
            assert_eq!((head.bytes, head.records, head.producer_id), (batch.len(), 3, 5));
            assert!(head.is_transactional() && !head.is_control());
            check(&head, &batch).unwrap();
            let data = records(&head, &batch).unwrap();
            let mut found = Vec::new();
            each(&head, &data, |record| {
                let mut headers = Vec::new();
                record.headers.each(|name, value| {
                    let name = String::from_utf8(name.to_vec()).unwrap();
                    headers.push((name, value.map(<[u8]>::to_vec)));
                })?;
                let (key, value) =
                    (record.key.map(<[u8]>::to_vec), record.value.map(<[u8]>::to_vec));
                found.push(NewRecord { timestamp: record.timestamp, key, value, headers });
                Ok::<_, Flaw>(())
            })
            .unwrap();
            assert_eq!(found.iter().collect::<Vec<_>>(), all, "{packing:?}");
        }
    }
}
