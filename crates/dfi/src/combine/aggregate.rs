//! Aggregate functions of a combine flow.

use millstream_state::{Block, ValueKind, ValueSlot, bucket_of, hash_bytes};

use crate::combine::number::{NumberAt, NumberType};
use crate::error::{Error, Result};
use crate::schema::Schema;

/// An aggregate function and its attribute.
#[derive(Debug, Clone, PartialEq)]
pub struct Aggregate {
    function: Function,
    attribute: String,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Function {
    Sum,
    Min,
    Max,
    Of(ValueKind),
}

impl Aggregate {
    /// The number of tuples: COUNT.
    pub fn count() -> Aggregate {
        Aggregate { function: Function::Of(ValueKind::Count), attribute: String::new() }
    }

    /// The sum of an attribute: exact; rounded once if the attribute is a float.
    pub fn sum(attribute: &str) -> Aggregate {
        Aggregate { function: Function::Sum, attribute: attribute.to_owned() }
    }

    /// The least value of an attribute: of a number by its value, else by its bytes.
    pub fn min(attribute: &str) -> Aggregate {
        Aggregate { function: Function::Min, attribute: attribute.to_owned() }
    }

    /// The greatest value of an attribute.
    pub fn max(attribute: &str) -> Aggregate {
        Aggregate { function: Function::Max, attribute: attribute.to_owned() }
    }

    /// Any kind of mergeable value, but for [`ValueKind::Set`] and [`ValueKind::Best`]: their
    /// inputs are not attributes but elements with a sort key. [`ValueKind::Registers`] counts the
    /// different byte strings of the attribute.
    pub fn of(kind: ValueKind, attribute: &str) -> Aggregate {
        Aggregate { function: Function::Of(kind), attribute: attribute.to_owned() }
    }

    /// The aggregate over a schema's tuples.
    pub(crate) fn plan(&self, schema: &Schema) -> Result<Planned> {
        if self.function == Function::Of(ValueKind::Count) {
            let input = Input::Nothing;
            return Ok(Planned { kind: ValueKind::Count, input });
        }
        let unknown = |wanted: &str| Error::NoAttribute {
            name: self.attribute.clone(),
            wanted: wanted.to_owned(),
            schema: schema.to_string(),
        };
        let attribute = schema.find(&self.attribute).ok_or_else(|| unknown("any kind"))?;
        let bytes = Input::Bytes(attribute.offset, attribute.bytes);
        let number = NumberAt::of(attribute);
        let kind = match (self.function, number) {
            (Function::Of(kind), _) => kind,
            (Function::Sum, Some(NumberAt { of: NumberType::Float, .. })) => ValueKind::SumFloat,
            (Function::Sum, Some(number)) if number.is_narrow() => ValueKind::SumInt,
            (Function::Sum, Some(_)) => ValueKind::SumDecimal,
            (Function::Sum, None) => return Err(unknown("a number")),
            (Function::Min, None) => ValueKind::MinBytes,
            (Function::Max, None) => ValueKind::MaxBytes,
            (Function::Min, Some(number)) if number.is_narrow() => ValueKind::Min64,
            (Function::Max, Some(number)) if number.is_narrow() => ValueKind::Max64,
            (Function::Min, Some(_)) => ValueKind::Min128,
            (Function::Max, Some(_)) => ValueKind::Max128,
        };
        let input = match needed(kind) {
            Needed::Bytes => Some(bytes),
            Needed::Number => number.map(Input::Number),
            Needed::Integer => number.filter(|one| one.of != NumberType::Float).map(Input::Number),
            Needed::Element => None,
        };
        let wanted = || format!("{:?}", needed(kind)).to_lowercase();
        let input = input.ok_or_else(|| unknown(&wanted()))?;
        Ok(Planned { kind, input })
    }
}

/// The input that a kind of value needs.
#[derive(Debug, Clone, Copy)]
enum Needed {
    Number,
    Integer,
    Bytes,
    Element,
}

fn needed(kind: ValueKind) -> Needed {
    match kind {
        ValueKind::Count | ValueKind::SumFloat | ValueKind::Histogram => Needed::Number,
        ValueKind::Min64 | ValueKind::Max64 => Needed::Number,
        ValueKind::SumInt | ValueKind::SumDecimal => Needed::Integer,
        ValueKind::Min128 | ValueKind::Max128 => Needed::Integer,
        ValueKind::BitAnd | ValueKind::BitOr | ValueKind::BitXor => Needed::Integer,
        ValueKind::MinBytes | ValueKind::MaxBytes => Needed::Bytes,
        ValueKind::List | ValueKind::Chain => Needed::Bytes,
        ValueKind::Frequent | ValueKind::Registers => Needed::Bytes,
        ValueKind::Set | ValueKind::Best(_) => Needed::Element,
    }
}

/// Where an aggregate's input stands in a tuple.
#[derive(Debug, Clone, Copy)]
enum Input {
    Nothing,
    Number(NumberAt),
    /// Offset and length.
    Bytes(usize, usize),
}

/// An aggregate over the tuples of a schema.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Planned {
    pub(crate) kind: ValueKind,
    input: Input,
}

impl Planned {
    /// Whether the result is a float in the order of integers.
    pub(crate) fn is_ordered_float(&self) -> bool {
        let float = matches!(self.input, Input::Number(one) if one.of == NumberType::Float);
        float && matches!(self.kind, ValueKind::Min64 | ValueKind::Max64)
    }

    /// Updates the rows of a block of tuples. `tuple(k)` is the tuple at position `k`, of `count`.
    #[inline]
    pub(crate) fn update<'t>(
        &self,
        block: &mut Block<'_>,
        slot: ValueSlot,
        (count, tuple): (usize, impl Fn(usize) -> &'t [u8]),
        doubles: &mut Vec<f64>,
    ) {
        match self.input {
            Input::Nothing => block.count(slot, None),
            Input::Bytes(offset, bytes) => {
                let value = |k: usize| &tuple(k)[offset..offset + bytes];
                match self.kind {
                    ValueKind::MinBytes | ValueKind::MaxBytes => {
                        block.extreme_bytes(slot, None, value);
                    }
                    ValueKind::Registers => {
                        block.blob_words(slot, None, |k| hash_bytes(value(k)));
                    }
                    _ => block.blob_bytes(slot, None, value),
                }
            }
            Input::Number(number) => match self.kind {
                ValueKind::SumInt => block.sum_int(slot, None, |k| number.integer(tuple(k))),
                ValueKind::SumDecimal => {
                    block.sum_decimal(slot, None, |k| number.integer(tuple(k)));
                }
                ValueKind::SumFloat => {
                    doubles.clear();
                    doubles.extend((0..count).map(|k| number.double(tuple(k))));
                    block.sum_float(slot, None, None, doubles);
                }
                ValueKind::Min64 | ValueKind::Max64 => {
                    block.extreme64(slot, None, |k| number.ordered(tuple(k)));
                }
                ValueKind::Min128 | ValueKind::Max128 => {
                    block.extreme128(slot, None, |k| number.integer(tuple(k)));
                }
                ValueKind::Histogram => {
                    block.blob_words(slot, None, |k| bucket_of(number.double(tuple(k))).into());
                }
                ValueKind::Count => block.count(slot, None),
                _ => block.bits(slot, None, |k| number.integer(tuple(k)) as i64),
            },
        }
    }
}
