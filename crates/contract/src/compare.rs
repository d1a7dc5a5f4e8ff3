//! Comparing an integer column with a constant. This is the most common filter, so it has code of
//! its own, which takes one instruction per record or less.

use std::fmt;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Int32Array, Int64Array, RecordBatch, Scalar,
};
use arrow::buffer::{BooleanBuffer, Buffer};
use arrow::compute::kernels::cmp::{eq, gt, gt_eq, lt, lt_eq, neq};
use arrow::compute::or_kleene;
use arrow::datatypes::{DataType, Int32Type, Int64Type};

use crate::error::{Error, Result};
use crate::expr::Evaluate;
use crate::pruning::{AnyOf, Condition};

pub use crate::pruning::Comparison;

/// `column op constant` for an INT or BIGINT column.
#[derive(Debug)]
pub struct CompareColumn {
    column: usize,
    /// BIGINT, otherwise INT.
    is_long: bool,
    comparison: Comparison,
    constant: i64,
    text: String,
}

impl CompareColumn {
    /// `None` unless the column's type is `Int32` or `Int64` and the constant is a value of it.
    pub fn new(
        column: usize,
        data_type: &DataType,
        comparison: Comparison,
        constant: i64,
        text: String,
    ) -> Option<CompareColumn> {
        let fits = match data_type {
            DataType::Int64 => true,
            DataType::Int32 => i32::try_from(constant).is_ok(),
            _ => false,
        };
        let is_long = *data_type == DataType::Int64;
        fits.then_some(CompareColumn { column, is_long, comparison, constant, text })
    }
}

impl fmt::Display for CompareColumn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Evaluate for CompareColumn {
    fn evaluate(&self, batch: &RecordBatch) -> Result<ArrayRef> {
        let column = batch.column(self.column);
        let mut words = match column.data_type() {
            DataType::Int32 => {
                let values = column.as_primitive::<Int32Type>().values();
                mask(values, self.comparison, self.constant as i32)
            }
            DataType::Int64 => {
                let values = column.as_primitive::<Int64Type>().values();
                mask(values, self.comparison, self.constant)
            }
            other => return Err(Error::Internal(format!("{self} over {other}"))),
        };
        use Comparison::*;
        if matches!(self.comparison, NotEqual | LessOrEqual | GreaterOrEqual) {
            words.iter_mut().for_each(|word| *word = !*word);
        }
        let bits = BooleanBuffer::new(Buffer::from_vec(words), 0, column.len());
        Ok(Arc::new(BooleanArray::new(bits, column.nulls().cloned())))
    }

    fn data_type(&self) -> &DataType {
        &DataType::Boolean
    }

    fn implies(&self) -> Vec<AnyOf> {
        let constant: ArrayRef = match self.is_long {
            true => Arc::new(Int64Array::from(vec![self.constant])),
            false => Arc::new(Int32Array::from(vec![self.constant as i32])),
        };
        let condition = Condition { column: self.column, comparison: self.comparison, constant };
        vec![AnyOf(vec![condition])]
    }

    fn columns(&self) -> Option<Vec<usize>> {
        Some(vec![self.column])
    }
}

impl Evaluate for AnyOf {
    fn evaluate(&self, batch: &RecordBatch) -> Result<ArrayRef> {
        let mut any = BooleanArray::from(vec![false; batch.num_rows()]);
        for Condition { column, comparison, constant } in &self.0 {
            let (column, constant) = (batch.column(*column), Scalar::new(constant.clone()));
            let holds = match comparison {
                Comparison::Equal => eq(column, &constant)?,
                Comparison::NotEqual => neq(column, &constant)?,
                Comparison::Less => lt(column, &constant)?,
                Comparison::LessOrEqual => lt_eq(column, &constant)?,
                Comparison::Greater => gt(column, &constant)?,
                Comparison::GreaterOrEqual => gt_eq(column, &constant)?,
            };
            any = or_kleene(&any, &holds)?;
        }
        Ok(Arc::new(any))
    }

    fn data_type(&self) -> &DataType {
        &DataType::Boolean
    }

    fn columns(&self) -> Option<Vec<usize>> {
        Some(self.compared().collect())
    }
}

/// An integer that can be compared many at a time.
trait Lanes: Copy + Ord {
    /// Bit `i` of the result tells whether `values[i]` is equal to (`EQUAL`) or greater than
    /// `constant`, or less than it (`LESS`).
    ///
    /// # Safety
    /// The processor must have AVX2.
    #[cfg(target_arch = "x86_64")]
    unsafe fn mask64_avx2<const WHICH: u8>(values: &[Self; 64], constant: Self) -> u64;
}

const EQUAL: u8 = 0;
const GREATER: u8 = 1;
const LESS: u8 = 2;

/// 64 comparisons per word. A negated comparison gives the words of the plain comparison.
fn mask<T: Lanes>(values: &[T], comparison: Comparison, constant: T) -> Vec<u64> {
    match comparison {
        Comparison::Equal | Comparison::NotEqual => words::<T, EQUAL>(values, constant),
        Comparison::Greater | Comparison::LessOrEqual => words::<T, GREATER>(values, constant),
        Comparison::Less | Comparison::GreaterOrEqual => words::<T, LESS>(values, constant),
    }
}

fn words<T: Lanes, const WHICH: u8>(values: &[T], constant: T) -> Vec<u64> {
    let (whole, rest) = values.as_chunks::<64>();
    let mut words = Vec::with_capacity(whole.len() + 1);
    #[cfg(target_arch = "x86_64")]
    let vectorised = millstream_cpu::level() >= millstream_cpu::Level::Avx2;
    #[cfg(not(target_arch = "x86_64"))]
    let vectorised = false;
    if vectorised {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the processor has AVX2.
        words.extend(whole.iter().map(|c| unsafe { T::mask64_avx2::<WHICH>(c, constant) }));
    } else {
        words.extend(whole.iter().map(|chunk| one_by_one::<T, WHICH>(chunk, constant)));
    }
    if !rest.is_empty() {
        words.push(one_by_one::<T, WHICH>(rest, constant));
    }
    words
}

fn one_by_one<T: Lanes, const WHICH: u8>(values: &[T], constant: T) -> u64 {
    values.iter().enumerate().fold(0, |word, (i, value)| {
        let holds = match WHICH {
            EQUAL => *value == constant,
            GREATER => *value > constant,
            _ => *value < constant,
        };
        word | u64::from(holds) << i
    })
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use super::{EQUAL, GREATER, Lanes};
    use std::arch::x86_64::*;

    impl Lanes for i32 {
        #[inline(always)]
        unsafe fn mask64_avx2<const WHICH: u8>(values: &[i32; 64], constant: i32) -> u64 {
            // SAFETY: whoever calls makes sure that the processor has AVX2.
            unsafe { mask_i32::<WHICH>(values, constant) }
        }
    }

    impl Lanes for i64 {
        #[inline(always)]
        unsafe fn mask64_avx2<const WHICH: u8>(values: &[i64; 64], constant: i64) -> u64 {
            // SAFETY: whoever calls makes sure that the processor has AVX2.
            unsafe { mask_i64::<WHICH>(values, constant) }
        }
    }

    #[target_feature(enable = "avx2")]
    fn mask_i32<const WHICH: u8>(values: &[i32; 64], constant: i32) -> u64 {
        let constant = _mm256_set1_epi32(constant);
        let mut word = 0;
        for i in 0..8 {
            // SAFETY: eight values from `8 * i` on lie within the 64.
            let lanes = unsafe { _mm256_loadu_si256(values.as_ptr().add(8 * i).cast()) };
            let holds = match WHICH {
                EQUAL => _mm256_cmpeq_epi32(lanes, constant),
                GREATER => _mm256_cmpgt_epi32(lanes, constant),
                _ => _mm256_cmpgt_epi32(constant, lanes),
            };
            let bits = _mm256_movemask_ps(_mm256_castsi256_ps(holds)) as u8;
            word |= u64::from(bits) << (8 * i);
        }
        word
    }

    #[target_feature(enable = "avx2")]
    fn mask_i64<const WHICH: u8>(values: &[i64; 64], constant: i64) -> u64 {
        let constant = _mm256_set1_epi64x(constant);
        let mut word = 0;
        for i in 0..16 {
            // SAFETY: four values from `4 * i` on lie within the 64.
            let lanes = unsafe { _mm256_loadu_si256(values.as_ptr().add(4 * i).cast()) };
            let holds = match WHICH {
                EQUAL => _mm256_cmpeq_epi64(lanes, constant),
                GREATER => _mm256_cmpgt_epi64(lanes, constant),
                _ => _mm256_cmpgt_epi64(constant, lanes),
            };
            let bits = _mm256_movemask_pd(_mm256_castsi256_pd(holds)) as u8;
            word |= u64::from(bits) << (4 * i);
        }
        word
    }
}

#[cfg(not(target_arch = "x86_64"))]
impl Lanes for i32 {}
#[cfg(not(target_arch = "x86_64"))]
impl Lanes for i64 {}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{Int32Array, Int64Array};
    use arrow::compute::kernels::cmp;

    /// Against Arrow's own kernels, all lengths around the word size, NULLs included.
    #[test]
    fn comparisons_agree_with_arrows() {
        use Comparison::*;
        for len in [0, 1, 63, 64, 65, 200] {
            let value = |i: i64| (i % 7 != 3).then_some(i * 37 % 11 - 5);
            let wide: ArrayRef = Arc::new((0..len).map(value).collect::<Int64Array>());
            let narrow: ArrayRef =
                Arc::new((0..len).map(|i| value(i).map(|v| v as i32)).collect::<Int32Array>());
            for constant in [-5i64, 0, 3, 100] {
                for (column, scalar) in [
                    (&wide, Arc::new(Int64Array::from(vec![constant])) as ArrayRef),
                    (&narrow, Arc::new(Int32Array::from(vec![constant as i32]))),
                ] {
                    let scalar = arrow::array::Scalar::new(scalar);
                    for (comparison, expected) in [
                        (Equal, cmp::eq(column, &scalar)),
                        (NotEqual, cmp::neq(column, &scalar)),
                        (Less, cmp::lt(column, &scalar)),
                        (LessOrEqual, cmp::lt_eq(column, &scalar)),
                        (Greater, cmp::gt(column, &scalar)),
                        (GreaterOrEqual, cmp::gt_eq(column, &scalar)),
                    ] {
                        let batch = RecordBatch::try_from_iter([("v", column.clone())]).unwrap();
                        let data_type = column.data_type();
                        let ours =
                            CompareColumn::new(0, data_type, comparison, constant, String::new());
                        let ours = ours.unwrap().evaluate(&batch).unwrap();
                        assert_eq!(ours.as_boolean(), &expected.unwrap(), "{comparison:?}");
                    }
                }
            }
        }
        assert!(CompareColumn::new(0, &DataType::Int32, Equal, 1 << 40, String::new()).is_none());
        assert!(CompareColumn::new(0, &DataType::Utf8, Equal, 0, String::new()).is_none());
    }
}
