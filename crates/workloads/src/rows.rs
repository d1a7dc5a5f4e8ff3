//! Keys as strings; and whole rows, for workloads that join rows: number of bytes, and filling
//! text.

use crate::spec::Workload;

pub(crate) use crate::spec::SELLER_EVERY;

/// Bytes of a string key: `user-` and 11 digits.
pub const STRING_KEY_BYTES: usize = 16;

/// Bytes of a row without its `data`: time, key, event type and number.
const OTHER_BYTES: usize = 28;

/// Bytes of `data` at the most.
const DATA_BYTES_MAX: usize = 269 - OTHER_BYTES;

/// How many bytes the `data` of rows has: of auctions or bids, and of sellers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RowData([usize; 2]);

impl RowData {
    /// Row data of a workload, if its rows have any.
    pub(crate) fn of(workload: Workload) -> Option<RowData> {
        let row_bytes = match workload {
            Workload::Nb8Rows => [269, 206],
            Workload::Nb11 => [32, 206],
            _ => return None,
        };
        Some(RowData(row_bytes.map(|bytes: usize| bytes - OTHER_BYTES)))
    }

    /// How many bytes it has.
    pub(crate) fn bytes(self, seller: bool) -> usize {
        self.0[usize::from(seller)]
    }

    /// Adds the `data` of a row to a text: its key as text, again and again, as far as there is
    /// room; where there is less than for one, the key's end.
    pub(crate) fn write(
        self,
        key: &[u8; STRING_KEY_BYTES],
        seller: bool,
        write: impl FnOnce(&str),
    ) {
        let mut room = [0; DATA_BYTES_MAX];
        let room = &mut room[..self.bytes(seller)];
        let key = &key[key.len().saturating_sub(room.len())..];
        room.chunks_mut(key.len()).for_each(|part| part.copy_from_slice(&key[..part.len()]));
        write(std::str::from_utf8(room).unwrap_or_default());
    }

    /// Whether this is the `data` of a row with this key, as far as its length, its beginning and
    /// its end say.
    #[inline]
    pub(crate) fn is(self, data: &[u8], key: &[u8; STRING_KEY_BYTES], seller: bool) -> bool {
        let rest = data.len() % STRING_KEY_BYTES;
        data.len() == self.bytes(seller)
            && match data.len() < STRING_KEY_BYTES {
                true => key.ends_with(data),
                false => {
                    data.starts_with(key)
                        && data.ends_with(&key[..rest])
                        && data[..data.len() - rest].ends_with(key)
                }
            }
    }
}

/// `user-` and `k` as 11 digits.
#[inline(always)]
pub(crate) fn string_key(mut k: u64) -> [u8; STRING_KEY_BYTES] {
    let mut key = *b"user-00000000000";
    for digit in key[5..].iter_mut().rev() {
        *digit = b'0' + (k % 10) as u8;
        k /= 10;
    }
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_told_from_that_of_other_keys_and_sides() {
        for (workload, lengths) in [(Workload::Nb8Rows, [241, 178]), (Workload::Nb11, [4, 178])] {
            let data = RowData::of(workload).expect("whole rows");
            for seller in [false, true] {
                let mut text = String::new();
                data.write(&string_key(1_234), seller, |data| text.push_str(data));
                assert_eq!(text.len(), lengths[usize::from(seller)]);
                assert!(data.is(text.as_bytes(), &string_key(1_234), seller));
                assert!(!data.is(text.as_bytes(), &string_key(1_235), seller));
                assert!(!data.is(text.as_bytes(), &string_key(1_234), !seller));
            }
        }
        let mut bid = String::new();
        let data = RowData::of(Workload::Nb11).expect("whole rows");
        data.write(&string_key(1_234), false, |data| bid.push_str(data));
        assert_eq!(bid, "1234");
    }
}
