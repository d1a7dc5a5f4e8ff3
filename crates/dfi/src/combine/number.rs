//! Numbers of tuples, by the types of their attributes.

use millstream_state::float_to_ordered;

use crate::schema::Attribute;

/// The numeric types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NumberType {
    Unsigned,
    Signed,
    Float,
}

/// Where a number stands in a tuple.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NumberAt {
    pub(crate) of: NumberType,
    offset: usize,
    bytes: usize,
}

impl NumberAt {
    /// The number of an attribute; `None` if its type is no number.
    pub(crate) fn of(attribute: &Attribute) -> Option<NumberAt> {
        let of = match attribute.type_name.as_str() {
            "u8" | "u16" | "u32" | "u64" => NumberType::Unsigned,
            "i8" | "i16" | "i32" | "i64" | "i128" => NumberType::Signed,
            "f32" | "f64" => NumberType::Float,
            _ => return None,
        };
        Some(NumberAt { of, offset: attribute.offset, bytes: attribute.bytes })
    }

    /// Whether every value fits into 64 bits with sign.
    pub(crate) fn is_narrow(&self) -> bool {
        match self.of {
            NumberType::Unsigned => self.bytes < 8,
            NumberType::Signed => self.bytes <= 8,
            NumberType::Float => true,
        }
    }

    /// An integer.
    #[inline]
    pub(crate) fn integer(&self, tuple: &[u8]) -> i128 {
        let mut word = [0; 16];
        word[..self.bytes].copy_from_slice(&tuple[self.offset..self.offset + self.bytes]);
        let unused = 128 - 8 * self.bytes as u32;
        let value = i128::from_le_bytes(word) << unused;
        match self.of {
            NumberType::Signed => value >> unused,
            _ => (value as u128 >> unused) as i128,
        }
    }

    /// A double.
    #[inline]
    pub(crate) fn double(&self, tuple: &[u8]) -> f64 {
        let bytes = &tuple[self.offset..self.offset + self.bytes];
        match (self.of, bytes.first_chunk::<4>(), bytes.first_chunk::<8>()) {
            (NumberType::Float, _, Some(double)) => f64::from_ne_bytes(*double),
            (NumberType::Float, Some(single), None) => f32::from_ne_bytes(*single).into(),
            _ => self.integer(tuple) as f64,
        }
    }

    /// A number of 64 bits in the order of integers.
    #[inline]
    pub(crate) fn ordered(&self, tuple: &[u8]) -> i64 {
        match self.of {
            NumberType::Float => float_to_ordered(self.double(tuple)),
            _ => self.integer(tuple) as i64,
        }
    }
}

const _: () = assert!(cfg!(target_endian = "little"), "integers are read in little-endian order");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{Schema, Type};

    fn number<T: Type>(value: &[u8]) -> (i128, f64) {
        let schema = Schema::new().u8("before").attribute::<T>("x");
        let attribute = schema.find("x").unwrap();
        let at = NumberAt::of(attribute).unwrap();
        let mut tuple = vec![0xff; schema.tuple_bytes()];
        tuple[attribute.offset..attribute.offset + value.len()].copy_from_slice(value);
        (at.integer(&tuple), at.double(&tuple))
    }

    #[test]
    fn numbers_of_all_types() {
        assert_eq!(number::<u8>(&[255]).0, 255);
        assert_eq!(number::<i8>(&[255]).0, -1);
        assert_eq!(number::<u64>(&u64::MAX.to_ne_bytes()).0, u64::MAX.into());
        assert_eq!(number::<i64>(&i64::MIN.to_ne_bytes()).0, i64::MIN.into());
        assert_eq!(number::<i128>(&i128::MIN.to_ne_bytes()).0, i128::MIN);
        assert_eq!(number::<f32>(&1.5_f32.to_ne_bytes()).1, 1.5);
        assert_eq!(number::<f64>(&(-0.1_f64).to_ne_bytes()).1, -0.1);
        assert_eq!(number::<i16>(&(-3_i16).to_ne_bytes()).1, -3.0);
        assert!(NumberAt::of(Schema::new().bytes::<3>("x").find("x").unwrap()).is_none());
    }
}
