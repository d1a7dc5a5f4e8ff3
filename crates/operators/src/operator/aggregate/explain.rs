//! Texts about an aggregate for messages and `EXPLAIN`: its name, the words of its row, and the
//! bytes per key.

use std::fmt::Write;

use arrow::datatypes::DataType;
use millstream_state::{Counted, ValueKind, Wanted};

use super::grouping::Grouping;
use crate::operator::finish::Finisher;
use crate::windowing::Packing;

/// Index bytes per key: 8 per entry. A large index is half full at the least, a small one between
/// five sixteenths, when it has just doubled, and five eighths.
const INDEX_BYTES: (usize, usize) = (10, 26);

pub(super) fn name_of(grouping: &Grouping, finisher: &Finisher) -> String {
    let name = match (finisher.pairing(), grouping.aggregates.keeps_records()) {
        (Some(_), _) => "join within sessions",
        (None, true) => "sessions",
        (None, false) => "aggregate",
    };
    if grouping.keys.is_empty() {
        return name.into();
    }
    let keys: Vec<String> = grouping.keys.iter().map(|k| shortened(&k.name)).collect();
    format!("{name} by ({})", keys.join(", "))
}

/// A key's text, if it is not too long to be read in a message.
fn shortened(text: &str) -> String {
    const CHARS_MAX: usize = 60;
    match text.char_indices().nth(CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_string(),
    }
}

/// Text about the kept state of a value.
fn kept_of(kind: ValueKind) -> String {
    use ValueKind::*;
    let kept = match kind {
        Count => "number",
        SumInt | SumDecimal | SumFloat => "sum",
        Min64 | Min128 | MinBytes => "least",
        Max64 | Max128 | MaxBytes => "greatest",
        BitAnd => "bits that all have",
        BitOr => "bits that any has",
        BitXor => "bits that an odd number have",
        List => "list of all",
        Set => "list of all that differ",
        Chain => "all rows",
        Best(Wanted { limit: u32::MAX, counted: Counted::Elements }) => "all rows",
        Best(Wanted { limit, counted: Counted::Elements }) => return format!("first {limit} rows"),
        Best(Wanted { limit, .. }) => return format!("rows of the first {limit} ranks"),
        Frequent => "most frequent",
        Registers => "HyperLogLog",
        Histogram => "histogram",
    };
    kept.into()
}

/// The layout of its state, one part per line. Writing to a `String` cannot fail.
pub(super) fn add_layout(
    text: &mut String,
    grouping: &Grouping,
    type_name: &dyn Fn(&DataType) -> String,
) {
    let layout = &grouping.layout;
    let _ = writeln!(text, "  row of {} bytes per key and window slice:", layout.row_bytes());
    let keys = grouping.keys.iter().map(|k| format!("{} {}", k.name, type_name(&k.data_type)));
    let mut names: Vec<String> = keys.collect();
    match grouping.windowing.packing() {
        Packing::Nothing => {}
        Packing::Windows => names.insert(0, "window_start".to_string()),
        Packing::Parts => names.push("window_part".to_string()),
    }
    let names = if names.is_empty() { "none".to_string() } else { names.join(", ") };
    let _ = writeln!(text, "    {:>4} bytes  key: {names}", layout.key_words() * 8);
    let seen = layout.seen_words().len() * 8;
    if seen > 0 {
        let _ = writeln!(text, "    {seen:>4} bytes  which values have met an input");
    }
    for (slot, users) in layout.values().iter().zip(grouping.aggregates.users()) {
        let bytes = slot.kind.words() * 8;
        let kept = kept_of(slot.kind);
        let users =
            if users.is_empty() { "the bounds of sessions".into() } else { users.join(", ") };
        let _ = writeln!(text, "    {bytes:>4} bytes  {kept}: {users}");
    }
    let row = layout.row_bytes();
    let (least, most) = (row + INDEX_BYTES.0, row + INDEX_BYTES.1);
    let _ = writeln!(text, "  estimated {least} to {most} bytes per key, index included");
    if layout.uses_arena() {
        let _ = writeln!(
            text,
            "  besides, strings and sums of widely differing numbers take room in an arena"
        );
    }
}
