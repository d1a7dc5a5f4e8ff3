//! Which rows of a batch a condition lets pass.

use arrow::buffer::BooleanBuffer;
use millstream_cpu::fronts::FRONTS;
#[cfg(target_arch = "x86_64")]
use millstream_cpu::{Level, fronts::front8, level};

/// Positions of the rows that a mask lets pass, ascending.
pub(crate) fn positions(mask: &BooleanBuffer) -> Vec<u32> {
    let mut rows = Vec::new();
    select(Some(mask), mask.len(), &mut rows);
    rows
}

/// Positions of the `len` rows, as many as a mask has bits, that it lets pass, ascending.
pub(crate) fn select(mask: Option<&BooleanBuffer>, len: usize, rows: &mut Vec<u32>) {
    let Some(mask) = mask else {
        rows.clear();
        rows.extend(0..len as u32);
        return;
    };
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
        fn select_avx2(mask: &BooleanBuffer, len: usize, rows: &mut Vec<u32>) {
            use std::arch::x86_64::*;
            select_set(mask, len, rows, |byte, base, out| {
                let positions = _mm256_add_epi32(_mm256_set1_epi32(base as i32), front8(byte));
                // SAFETY: `select_set` has room for eight.
                unsafe { _mm256_storeu_si256(out.cast(), positions) };
            });
        }
        if level() >= Level::Avx2 {
            // SAFETY: the level includes the features.
            return unsafe { select_avx2(mask, len, rows) };
        }
    }
    select_set(mask, len, rows, |byte, base, out| {
        let positions = FRONTS[usize::from(byte)].map(|position| base + u32::from(position));
        // SAFETY: `select_set` has room for eight.
        unsafe { out.cast::<[u32; 8]>().write_unaligned(positions) };
    });
}

/// `write` gets a byte of the mask, the position of its first bit, and room for eight positions.
#[inline(always)]
fn select_set(
    mask: &BooleanBuffer,
    len: usize,
    rows: &mut Vec<u32>,
    write: impl Fn(u8, u32, *mut u32),
) {
    rows.clear();
    // Eight positions are written at a time, so room for a few too many.
    rows.reserve(len + 64);
    assert!(mask.len() <= len);
    let (mut out, mut base) = (rows.as_mut_ptr(), 0);
    for bits in mask.bit_chunks().iter_padded() {
        for byte in bits.to_le_bytes() {
            write(byte, base, out);
            // SAFETY: at most `len` positions have been counted, and there is room for eight beyond
            // those.
            out = unsafe { out.add(byte.count_ones() as usize) };
            base += 8;
        }
    }
    // SAFETY: `out` has moved once for each position counted.
    unsafe { rows.set_len(out.offset_from(rows.as_ptr()) as usize) };
}
