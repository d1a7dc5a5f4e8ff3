//! Compression of batches: gzip, snappy, lz4, zstd. Room is made within the bound on the memory
//! that decoding takes ([`decoding::take`]).

use std::io::{Read, Write};

use flate2::bufread::MultiGzDecoder;
use millstream_contract::decoding;

/// The fault of a batch that cannot be read, as text.
pub(crate) type Flaw = String;

/// Bytes unpacked at once.
const STEP_BYTES: u64 = 64 << 10;
/// Windows of zstd have 128 MiB at most.
const ZSTD_WINDOW_LOG_MAX: u32 = 27;
/// The head of snappy's blocks in Java: a name and two versions.
const XERIAL: &[u8] = b"\x82SNAPPY\0";
const XERIAL_BYTES: usize = 16;

/// A way of compression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Packing {
    Gzip,
    Snappy,
    Lz4,
    Zstd,
}

impl Packing {
    /// By its number in a batch.
    pub(super) fn of(number: i16) -> Result<Option<Packing>, Flaw> {
        Ok(match number {
            0 => None,
            1 => Some(Packing::Gzip),
            2 => Some(Packing::Snappy),
            3 => Some(Packing::Lz4),
            4 => Some(Packing::Zstd),
            other => return Err(format!("the batch is compressed in an unknown way: {other}")),
        })
    }
}

impl Packing {
    /// By its name in `compression.type`. `Some(None)`: records stay as they are.
    pub(crate) fn named(name: &str) -> Option<Option<Packing>> {
        Some(match name {
            "none" | "uncompressed" => None,
            "gzip" => Some(Packing::Gzip),
            "snappy" => Some(Packing::Snappy),
            "lz4" => Some(Packing::Lz4),
            "zstd" => Some(Packing::Zstd),
            _ => return None,
        })
    }

    /// Its number in a batch.
    pub(super) fn number(self) -> i16 {
        match self {
            Packing::Gzip => 1,
            Packing::Snappy => 2,
            Packing::Lz4 => 3,
            Packing::Zstd => 4,
        }
    }

    /// Compresses bytes.
    pub(super) fn pack(self, bytes: &[u8]) -> std::io::Result<Vec<u8>> {
        match self {
            Packing::Gzip => {
                let level = flate2::Compression::fast();
                let mut packer = flate2::write::GzEncoder::new(Vec::new(), level);
                packer.write_all(bytes)?;
                packer.finish()
            }
            Packing::Lz4 => {
                let mut packer = lz4_flex::frame::FrameEncoder::new(Vec::new());
                packer.write_all(bytes)?;
                packer.finish().map_err(std::io::Error::other)
            }
            Packing::Snappy => {
                let packed = snap::raw::Encoder::new().compress_vec(bytes);
                packed.map_err(std::io::Error::other)
            }
            Packing::Zstd => zstd::encode_all(bytes, 3),
        }
    }
}

/// Unpacks bytes.
pub(super) fn unpacked(packing: Packing, packed: &[u8]) -> Result<Vec<u8>, Flaw> {
    let damaged = |error: &dyn std::fmt::Display| format!("the batch cannot be unpacked: {error}");
    let mut reader: Box<dyn Read + '_> = match packing {
        Packing::Snappy => return snappy(packed),
        Packing::Gzip => Box::new(MultiGzDecoder::new(packed)),
        Packing::Lz4 => Box::new(lz4_flex::frame::FrameDecoder::new(packed)),
        Packing::Zstd => {
            let decoder = zstd::stream::read::Decoder::with_buffer(packed);
            let mut decoder = decoder.map_err(|error| damaged(&error))?;
            let limited = decoder.window_log_max(ZSTD_WINDOW_LOG_MAX);
            limited.map_err(|error| damaged(&error))?;
            Box::new(decoder)
        }
    };
    let mut all = Vec::with_capacity(packed.len().saturating_mul(2));
    loop {
        decoding::take(STEP_BYTES).map_err(|too_much| too_much.to_string())?;
        let mut step = reader.by_ref().take(STEP_BYTES);
        if step.read_to_end(&mut all).map_err(|error| damaged(&error))? == 0 {
            return Ok(all);
        }
    }
}

/// Blocks with their lengths in front, as Java writes them, or a single block.
fn snappy(packed: &[u8]) -> Result<Vec<u8>, Flaw> {
    let mut all = Vec::new();
    if !packed.starts_with(XERIAL) {
        block(packed, &mut all)?;
        return Ok(all);
    }
    let cut_off = || "the batch cannot be unpacked: it is cut off".to_string();
    let mut rest = packed.get(XERIAL_BYTES..).ok_or_else(cut_off)?;
    while let Some((length, after)) = rest.split_first_chunk::<4>() {
        let length = u32::from_be_bytes(*length) as usize;
        let (one, after) = after.split_at_checked(length).ok_or_else(cut_off)?;
        block(one, &mut all)?;
        rest = after;
    }
    match rest.is_empty() {
        true => Ok(all),
        false => Err(cut_off()),
    }
}

fn block(packed: &[u8], all: &mut Vec<u8>) -> Result<(), Flaw> {
    let damaged = |error: snap::Error| format!("the batch cannot be unpacked: {error}");
    let length = snap::raw::decompress_len(packed).map_err(damaged)?;
    decoding::take(length as u64).map_err(|too_much| too_much.to_string())?;
    let before = all.len();
    all.resize(before + length, 0);
    snap::raw::Decoder::new().decompress(packed, &mut all[before..]).map(drop).map_err(damaged)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packed(text: &[u8]) -> Vec<(Packing, Vec<u8>)> {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(text).unwrap();
        let mut lz4 = lz4_flex::frame::FrameEncoder::new(Vec::new());
        lz4.write_all(text).unwrap();
        let block = |text: &[u8]| snap::raw::Encoder::new().compress_vec(text).unwrap();
        let mut java = [XERIAL, &[0, 0, 0, 1, 0, 0, 0, 1]].concat();
        for part in text.chunks(1_000) {
            let part = block(part);
            java.extend((part.len() as u32).to_be_bytes());
            java.extend(part);
        }
        vec![
            (Packing::Gzip, gzip.finish().unwrap()),
            (Packing::Lz4, lz4.finish().unwrap()),
            (Packing::Snappy, block(text)),
            (Packing::Snappy, java),
            (Packing::Zstd, zstd::encode_all(text, 3).unwrap()),
        ]
    }

    #[test]
    fn all_ways_of_compression() {
        let text: Vec<u8> = (0..100_000u32).flat_map(|n| n.to_string().into_bytes()).collect();
        for (packing, packed) in packed(&text) {
            assert_eq!(unpacked(packing, &packed).unwrap(), text, "{packing:?}");
            for cut in [0, 1, 15, packed.len() / 2, packed.len() - 1] {
                let _ = unpacked(packing, &packed[..cut]);
            }
            let bounded = decoding::within(200_000, || unpacked(packing, &packed));
            assert!(bounded.is_err(), "{packing:?} has a bound");
        }
    }
}
