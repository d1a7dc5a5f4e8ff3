//! Floating-point numbers that are equal in SQL: NaNs, whatever the sign and further bits, and both
//! zeros. NaN is greater than all numbers. Arrow compares bits.

use std::sync::Arc;

use arrow::array::{ArrayRef, ArrowNativeTypeOp, ArrowPrimitiveType, AsArray};
use arrow::datatypes::{DataType, Float32Type, Float64Type};

/// The same column with one NaN and one zero, to be compared.
pub fn one_form(column: &ArrayRef) -> ArrayRef {
    match column.data_type() {
        DataType::Float64 => formed::<Float64Type>(column, one_double),
        DataType::Float32 => formed::<Float32Type>(column, one_float),
        _ => column.clone(),
    }
}

/// The same column with one NaN, to choose among its values.
pub fn one_nan(column: &ArrayRef) -> ArrayRef {
    match column.data_type() {
        DataType::Float64 => {
            formed::<Float64Type>(column, |v| if v.is_nan() { f64::NAN } else { v })
        }
        DataType::Float32 => {
            formed::<Float32Type>(column, |v| if v.is_nan() { f32::NAN } else { v })
        }
        _ => column.clone(),
    }
}

/// A single double for all equal doubles.
#[inline]
pub fn one_double(value: f64) -> f64 {
    if value.is_nan() { f64::NAN } else { value + 0.0 }
}

/// A single float for all equal floats.
#[inline]
pub fn one_float(value: f32) -> f32 {
    if value.is_nan() { f32::NAN } else { value + 0.0 }
}

/// Most columns have nothing to change, and stay.
fn formed<T: ArrowPrimitiveType>(
    column: &ArrayRef,
    form: impl Fn(T::Native) -> T::Native,
) -> ArrayRef {
    let values = column.as_primitive::<T>();
    // No early end: so it takes a fraction of an instruction for each value.
    let changes = values.values().iter().fold(false, |any, v| any | v.is_ne(form(*v)));
    if changes { Arc::new(values.unary::<_, T>(form)) } else { column.clone() }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Float32Array, Float64Array};

    use super::*;

    #[test]
    fn there_is_one_nan_and_one_zero() {
        let odd = f64::from_bits(0xFFF8_0000_0000_1234);
        let column = Float64Array::from(vec![Some(-0.0), Some(odd), None, Some(-1.5)]);
        let column: ArrayRef = Arc::new(column);
        let bits = |column: &ArrayRef| -> Vec<Option<u64>> {
            column.as_primitive::<Float64Type>().iter().map(|v| v.map(f64::to_bits)).collect()
        };
        let expected = [Some(0.0f64), Some(f64::NAN), None, Some(-1.5)];
        assert_eq!(bits(&one_form(&column)), expected.map(|v| v.map(f64::to_bits)));
        let expected = [Some(-0.0f64), Some(f64::NAN), None, Some(-1.5)];
        assert_eq!(bits(&one_nan(&column)), expected.map(|v| v.map(f64::to_bits)));
        let floats: ArrayRef = Arc::new(Float32Array::from(vec![-0.0, -f32::NAN, 0.5]));
        let formed = one_form(&floats);
        let formed = formed.as_primitive::<Float32Type>().values();
        let expected = [0.0, f32::NAN, 0.5].map(f32::to_bits);
        assert_eq!(formed.iter().map(|v| v.to_bits()).collect::<Vec<_>>(), expected);
        // Nothing to change: nothing is made.
        let plain: ArrayRef = Arc::new(Float64Array::from(vec![0.0, f64::NAN, 1.0]));
        assert!(Arc::ptr_eq(&plain, &one_form(&plain)));
    }
}
