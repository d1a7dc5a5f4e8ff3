//! What `EXPLAIN` prints about the state of an operator: the words of its row, and the bytes that a
//! key costs.

use std::fmt::Write;

use arrow::datatypes::DataType;

use crate::error::Result;
use crate::operator::aggregate::grouping::Grouping;
use crate::plan::{Aggregate, Operator, Plan};

/// Index bytes per key: 8 per entry. A large index is half full at the least, a small one between
/// five sixteenths, when it has just doubled, and five eighths.
const INDEX_BYTES: (usize, usize) = (10, 26);

/// The layout of a plan's state as text, one part per line; empty for a plan without state.
/// `type_name` names types as their user does.
pub fn state_layout(plan: &Plan, type_name: impl Fn(&DataType) -> String) -> Result<String> {
    let mut text = String::new();
    for (number, stage) in (1..).zip(&plan.stages) {
        if let Operator::Aggregate(aggregate) = &stage.operator {
            if plan.stages.len() > 1 {
                let _ = writeln!(text, "  stage {number}");
            }
            add_layout(&mut text, aggregate, &type_name)?;
        }
    }
    Ok(text)
}

fn add_layout(
    text: &mut String,
    aggregate: &Aggregate,
    type_name: impl Fn(&DataType) -> String,
) -> Result<()> {
    let grouping = Grouping::new(aggregate, 0)?;
    let layout = &grouping.layout;
    // Writing to a String cannot fail.
    let _ = writeln!(text, "  row of {} bytes per key and window slice:", layout.row_bytes());
    let names: Vec<String> =
        aggregate.keys.iter().map(|k| format!("{} {}", k.name, type_name(&k.data_type))).collect();
    let names = if names.is_empty() { "none".to_string() } else { names.join(", ") };
    let _ = writeln!(text, "    {:>4} bytes  key: {names}", layout.key_words() * 8);
    let seen = layout.seen_words().len() * 8;
    if seen > 0 {
        let _ = writeln!(text, "    {seen:>4} bytes  which values have met an input");
    }
    for (slot, users) in layout.values().iter().zip(grouping.aggregates.users()) {
        let bytes = slot.kind.words() * 8;
        let _ = writeln!(text, "    {bytes:>4} bytes  {:?}: {}", slot.kind, users.join(", "));
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
    Ok(())
}
