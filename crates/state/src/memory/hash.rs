//! The key hash: XXH3-64 with seed 0, over a key's words in little-endian order.
//!
//! The hash is part of the state's contract, not an implementation detail: partitions, leaders and
//! (later) checkpoints depend on it. So it is the same on every processor and in every version. The
//! golden vectors below come from the reference implementation.

#[cfg(target_arch = "x86_64")]
use millstream_cpu::{Level, level};
use xxhash_rust::xxh3::xxh3_64;

/// `secret[8..16] ^ secret[16..24]` of XXH3's default secret: what 4 to 8 byte inputs are keyed
/// with.
const SHORT_KEY: u64 = 0x1cad_21f7_2c81_017c ^ 0xdb97_9083_e96d_d4de;
const RRMXMX: u64 = 0x9FB2_1C65_1E98_DF25;

/// Hash of a one-word key; equal to `hash_words(&[word])`. About 12 instructions, inlined.
#[inline(always)]
pub fn hash_word(word: u64) -> u64 {
    let mut h = word.rotate_left(32) ^ SHORT_KEY;
    h ^= h.rotate_left(49) ^ h.rotate_left(24);
    h = h.wrapping_mul(RRMXMX);
    h ^= (h >> 35).wrapping_add(8);
    h = h.wrapping_mul(RRMXMX);
    h ^ (h >> 28)
}

/// `secret[24..32] ^ secret[32..40]` and `secret[40..48] ^ secret[48..56]`: what inputs of 9 to 16
/// bytes are keyed with.
const PAIR_KEYS: [u64; 2] =
    [0x1f67_b3b7_a4a4_4072 ^ 0x78e5_c0cc_4ee6_79cb, 0x2172_ffcc_7dd0_5a82 ^ 0x8e24_43f7_7446_08b8];
const AVALANCHE: u64 = 0x1656_6791_9E37_79F9;

/// Hash of a two-word key; equal to `hash_words(&[low, high])`.
#[inline(always)]
fn hash_pair(low: u64, high: u64) -> u64 {
    let (low, high) = (low ^ PAIR_KEYS[0], high ^ PAIR_KEYS[1]);
    let product = u128::from(low) * u128::from(high);
    let folded = product as u64 ^ (product >> 64) as u64;
    let mut h = low.swap_bytes().wrapping_add(16).wrapping_add(high).wrapping_add(folded);
    h = (h ^ h >> 37).wrapping_mul(AVALANCHE);
    h ^ h >> 32
}

/// Hashes of one-word keys, vectorised as far as the processor goes.
pub fn hash_each_word(words: &[u64], hashes: &mut [u64]) {
    #[inline(always)]
    fn each(words: &[u64], hashes: &mut [u64]) {
        for (hash, word) in hashes.iter_mut().zip(words) {
            *hash = hash_word(*word);
        }
    }
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx512f,avx512dq,avx512vl")]
        fn each_avx512(words: &[u64], hashes: &mut [u64]) {
            each(words, hashes);
        }
        #[target_feature(enable = "avx2")]
        fn each_avx2(words: &[u64], hashes: &mut [u64]) {
            each(words, hashes);
        }
        match level() {
            // SAFETY: the processor has the level.
            Level::Avx512 => return unsafe { each_avx512(words, hashes) },
            // SAFETY: as above.
            Level::Avx2 => return unsafe { each_avx2(words, hashes) },
            Level::Portable => {}
        }
    }
    each(words, hashes);
}

/// Hash of a key of any number of words.
#[inline]
pub fn hash_words(words: &[u64]) -> u64 {
    if let [word] = words {
        return hash_word(*word);
    }
    if let [low, high] = words {
        return hash_pair(*low, *high);
    }
    if cfg!(target_endian = "little") {
        // SAFETY: any u64 slice is readable as bytes, and on this target its bytes are already in
        // little-endian order.
        let bytes =
            unsafe { std::slice::from_raw_parts(words.as_ptr().cast::<u8>(), words.len() * 8) };
        xxh3_64(bytes)
    } else {
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        xxh3_64(&bytes)
    }
}

/// Hash of a variable-length value: stands for the value among a key's words.
#[inline]
pub fn hash_bytes(bytes: &[u8]) -> u64 {
    xxh3_64(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_word_and_two_agree_with_the_general_form() {
        let mut word = 1u64;
        for i in 0..10_000u64 {
            assert_eq!(hash_word(word), xxh3_64(&word.to_le_bytes()));
            let pair = [word.to_le_bytes(), i.to_le_bytes()].concat();
            assert_eq!(hash_words(&[word, i]), xxh3_64(&pair));
            let mut hashes = [0; 9];
            hash_each_word(&[word; 9], &mut hashes);
            assert_eq!(hashes, [hash_word(word); 9]);
            word = word.wrapping_mul(6364136223846793005).wrapping_add(i);
        }
    }

    /// From `xxhash` 3.x, the Python binding of the reference C library:
    /// `xxhash.xxh3_64_intdigest(struct.pack('<Q', x))` and so on.
    #[test]
    fn golden_vectors() {
        GOLDEN_WORDS.iter().for_each(|(words, hash)| assert_eq!(hash_words(words), *hash));
        GOLDEN_BYTES.iter().for_each(|(bytes, hash)| assert_eq!(hash_bytes(bytes), *hash));
    }

    include!("hash_golden.rs");
}
