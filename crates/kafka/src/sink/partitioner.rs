//! The partition of a row.

/// How rows are distributed over partitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Partitioner {
    /// By the key, as Java's client does; rows without a key in turns.
    Default,
    /// All rows to the first partition, as a Flink job of one writer.
    Fixed,
    /// In turns.
    RoundRobin,
}

/// Rows that go to a partition before it is the next one's turn: they share a batch.
const TURN: u64 = 64;

impl Partitioner {
    /// By the name of an option.
    pub(super) fn named(text: &str) -> Option<Partitioner> {
        match text.trim() {
            "default" => Some(Partitioner::Default),
            "fixed" => Some(Partitioner::Fixed),
            "round-robin" => Some(Partitioner::RoundRobin),
            _ => None,
        }
    }

    /// The partition of the row with this number, of so many partitions. It depends on nothing
    /// else, so that a row which is computed again goes to the same partition.
    pub(super) fn partition(self, number: u64, key: Option<&[u8]>, partitions: i32) -> i32 {
        let count = u64::from(partitions.max(1) as u32);
        let found = match (self, key) {
            (Partitioner::Fixed, _) => 0,
            (Partitioner::RoundRobin, _) => number % count,
            (Partitioner::Default, Some(key)) => u64::from(murmur2(key) & 0x7fff_ffff) % count,
            (Partitioner::Default, None) => number / TURN % count,
        };
        // Below the number of partitions.
        found as i32
    }
}

/// The hash of Java's client for keys.
fn murmur2(data: &[u8]) -> u32 {
    const FACTOR: u32 = 0x5bd1_e995;
    let mut hash = 0x9747_b28c ^ data.len() as u32;
    let mut words = data.chunks_exact(4);
    for word in &mut words {
        let mut word = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
        word = word.wrapping_mul(FACTOR);
        word ^= word >> 24;
        word = word.wrapping_mul(FACTOR);
        hash = hash.wrapping_mul(FACTOR) ^ word;
    }
    let rest = words.remainder();
    for (at, byte) in rest.iter().enumerate() {
        hash ^= u32::from(*byte) << (8 * at);
    }
    if !rest.is_empty() {
        hash = hash.wrapping_mul(FACTOR);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(FACTOR);
    hash ^ hash >> 15
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hashes from the tests of Kafka's own client (`UtilsTest.testMurmur2`).
    #[test]
    fn hashes_of_javas_client() {
        let known: [(&str, i32); 8] = [
            ("21", -973_932_308),
            ("foobar", -790_332_482),
            ("a-little-bit-long-string", -985_981_536),
            ("a-little-bit-longer-string", -1_486_304_829),
            ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971),
            ("abc", 479_470_107),
            ("", 275_646_681),
            ("21", -973_932_308),
        ];
        for (text, hash) in known {
            assert_eq!(murmur2(text.as_bytes()) as i32, hash, "{text}");
        }
    }

    #[test]
    fn a_row_has_one_partition() {
        for partitioner in [Partitioner::Default, Partitioner::Fixed, Partitioner::RoundRobin] {
            for number in 0..1_000 {
                for key in [None, Some(&b"key"[..])] {
                    let partition = partitioner.partition(number, key, 7);
                    assert!((0..7).contains(&partition));
                    assert_eq!(partition, partitioner.partition(number, key, 7));
                }
            }
        }
        let without_key: std::collections::BTreeSet<i32> =
            (0..1_000).map(|number| Partitioner::Default.partition(number, None, 7)).collect();
        assert_eq!(without_key.len(), 7);
    }
}
