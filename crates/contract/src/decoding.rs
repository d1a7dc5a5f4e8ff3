//! The bound on the memory that decoding a chunk takes, kept before it is allocated.
//!
//! A few bytes of a file may stand for very many in memory: packed pages, repeated values, objects
//! of which all members are missing. Whoever decodes gives a bound ([`within`]). Decoders count
//! what they are about to make room for ([`take`]). All of this happens on one thread, so the count
//! belongs to the thread. Without a bound nothing is refused.

use std::cell::Cell;
use std::fmt;

use arrow::datatypes::DataType;

/// Part of the setting `memory` that decoding a chunk may take.
const PART: u64 = 2;

/// Help for an error about [`TooMuch`].
pub const TOO_MUCH_HELP: &str = "raise the budget with --set memory='...' (decoding may take half of it), or write \
     smaller records, pages and batches";

/// Counts of the chunk at hand.
#[derive(Debug, Clone, Copy)]
struct Count {
    max: u64,
    allocated: u64,
    exceeded: Option<TooMuch>,
}

thread_local! {
    static COUNT: Cell<Count> =
        const { Cell::new(Count { max: u64::MAX, allocated: 0, exceeded: None }) };
    /// The taken bytes of the record at hand. Separate from `COUNT`, since each record sets this
    /// cell.
    static RECORD: Cell<u64> = const { Cell::new(0) };
}

/// More than a chunk may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooMuch {
    /// Bytes that would be allocated.
    pub bytes: u64,
    /// Bytes that may be allocated.
    pub max: u64,
    /// Whether a single record takes them.
    pub of_one_record: bool,
}

impl std::error::Error for TooMuch {}

impl fmt::Display for TooMuch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TooMuch { bytes, max, of_one_record } = self;
        let what = if *of_one_record { "the record takes" } else { "this would take" };
        write!(f, "once decoded, {what} {bytes} bytes or more, of {max} that it may take")
    }
}

/// Bytes that decoding may take in a job whose setting `memory` is this.
pub fn bytes_max(memory_bytes: u64) -> u64 {
    memory_bytes / PART
}

/// Decodes with a limit of `max` bytes.
pub fn within<T>(max: u64, decode: impl FnOnce() -> T) -> T {
    let before = COUNT.replace(Count { max, allocated: 0, exceeded: None });
    let record = RECORD.replace(0);
    let decoded = decode();
    COUNT.set(before);
    RECORD.set(record);
    decoded
}

/// Counts bytes for which room is about to be made.
///
/// # Errors
///
/// If there are too many.
pub fn take(bytes: u64) -> Result<(), TooMuch> {
    let mut count = COUNT.get();
    count.allocated = count.allocated.saturating_add(bytes);
    count.checked(count.allocated, false)
}

/// Whether so many bytes would be too many if nothing else were allocated.
///
/// # Errors
///
/// If they would.
pub fn check(bytes: u64) -> Result<(), TooMuch> {
    COUNT.get().checked(bytes, false)
}

/// Begins with a record, the bytes of which count by themselves, too.
pub fn begin_record() {
    RECORD.set(0);
}

/// Takes back what the record at hand has allocated: it is decoded again, or left out.
pub fn forget_record() {
    let (count, record) = (COUNT.get(), RECORD.replace(0));
    COUNT.set(Count { allocated: count.allocated.saturating_sub(record), ..count });
}

/// Counts bytes for which room is about to be made, of the record at hand.
///
/// # Errors
///
/// If there are too many: more than half of the bound for this record, whatever the others are, or
/// more than the bound for all.
pub fn take_of_record(bytes: u64) -> Result<(), TooMuch> {
    let (mut count, record) = (COUNT.get(), RECORD.get().saturating_add(bytes));
    RECORD.set(record);
    count.allocated = count.allocated.saturating_add(bytes);
    match record > count.max / 2 {
        true => count.checked(record, true),
        false => count.checked(count.allocated, false),
    }
}

impl Count {
    /// Keeps this count, unless so many bytes are too many.
    fn checked(mut self, bytes: u64, of_one_record: bool) -> Result<(), TooMuch> {
        let max = if of_one_record { self.max / 2 } else { self.max };
        let too_much = (bytes > max).then_some(TooMuch { bytes, max, of_one_record });
        self.exceeded = too_much.or(self.exceeded);
        COUNT.set(self);
        too_much.map_or(Ok(()), Err)
    }
}

/// Refusal of the chunk at hand, if there was one.
pub fn exceeded() -> Option<TooMuch> {
    COUNT.get().exceeded
}

/// Bytes that a value of this type takes at least: of texts and arrays, their offsets and one
/// element.
pub fn value_bytes(data_type: &DataType) -> u64 {
    use DataType::*;
    match data_type {
        List(item) | Map(item, _) => 4 + value_bytes(item.data_type()),
        Struct(fields) => fields.iter().map(|field| value_bytes(field.data_type())).sum(),
        Boolean => 1,
        other => other.primitive_width().unwrap_or(4) as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_has_half_of_the_bound_whatever_stands_beside_it() {
        assert_eq!(take(u64::MAX), Ok(()), "without a bound");
        within(100, || {
            assert_eq!((take(40), take_of_record(50)), (Ok(()), Ok(())));
            begin_record();
            let too_much = TooMuch { bytes: 101, max: 100, of_one_record: false };
            assert_eq!((take_of_record(11), exceeded()), (Err(too_much), Some(too_much)));
            forget_record();
            let too_much = TooMuch { bytes: 51, max: 50, of_one_record: true };
            assert_eq!(take_of_record(51), Err(too_much));
            forget_record();
            assert_eq!(take_of_record(10), Ok(()));
            within(5, || assert!(take(6).is_err()));
        });
        assert_eq!(exceeded(), None);
    }
}
