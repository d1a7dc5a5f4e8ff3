//! Which rows of a batch a condition lets pass.

use arrow::buffer::BooleanBuffer;
use millstream_cpu::fronts::FRONTS;
#[cfg(target_arch = "x86_64")]
use millstream_cpu::{Level, level};

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
        #[target_feature(enable = "avx2,popcnt")]
        fn select_avx2(mask: &BooleanBuffer, len: usize, rows: &mut Vec<u32>) {
            select_set(mask, len, rows);
        }
        if level() >= Level::Avx2 {
            // SAFETY: the level includes the features.
            return unsafe { select_avx2(mask, len, rows) };
        }
    }
    select_set(mask, len, rows);
}

#[inline(always)]
fn select_set(mask: &BooleanBuffer, len: usize, rows: &mut Vec<u32>) {
    rows.clear();
    // Eight positions are written at a time, so room for a few too many.
    rows.reserve(len + 64);
    assert!(mask.len() <= len);
    let (mut out, mut base) = (rows.as_mut_ptr(), 0);
    for bits in mask.bit_chunks().iter_padded() {
        for byte in bits.to_le_bytes() {
            let positions = &FRONTS[usize::from(byte)];
            // SAFETY: at most `len` positions have been counted, and there is room for eight beyond
            // those.
            unsafe {
                for (i, position) in positions.iter().enumerate() {
                    out.add(i).write(base + u32::from(*position));
                }
                out = out.add(byte.count_ones() as usize);
            }
            base += 8;
        }
    }
    // SAFETY: `out` has moved once for each position counted.
    unsafe { rows.set_len(out.offset_from(rows.as_ptr()) as usize) };
}
