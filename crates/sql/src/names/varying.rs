//! Whether the rows of an output, and their order, depend on the input alone. Then a job that is
//! started again computes the same rows again.

use millstream_contract::plan::{Derived, Node, Operator, Plan, Source, Watermark};

/// Why the rows of an output, or their order, may be others when they are computed again; `None`:
/// they are the same.
pub(crate) fn why_rows_vary(plan: &Plan, output: usize) -> Option<&'static str> {
    let found = plan.outputs.get(output)?;
    of_node(plan, Node::Stage(found.stage), true)
}

/// The same of the rows of a node. `ordered`: their order counts.
fn of_node(plan: &Plan, node: Node, ordered: bool) -> Option<&'static str> {
    match node {
        Node::Source(source) | Node::Malformed(source) => {
            of_source(plan.sources.get(source)?, ordered)
        }
        Node::Stage(stage) => {
            let stage = plan.stages.get(stage)?;
            let (ordered, limit) = match &stage.operator {
                Operator::Stateless { limit, .. } => (ordered, limit.is_some()),
                // Windows put their rows into an order.
                _ => (false, false),
            };
            if limit {
                return Some("it has a LIMIT");
            }
            stage.inputs.iter().find_map(|input| of_node(plan, input.from, ordered))
        }
    }
}

fn of_source(source: &Source, ordered: bool) -> Option<&'static str> {
    let reads_clock = source.derived.iter().any(|derived| matches!(derived, Derived::ReadTime));
    let time = source.event_time.as_ref();
    if reads_clock || time.is_some_and(|time| matches!(time.watermark, Watermark::Clock)) {
        return Some("it reads the clock (PROCTIME)");
    }
    if time.is_some_and(|time| time.idle_timeout_us.is_some()) {
        return Some("a table has 'scan.watermark.idle-timeout', so the clock decides on windows");
    }
    let apart = ordered && source.table.splits_are_apart();
    // Of a single split, records have one order.
    let several = || source.table.splits().map_or(true, |splits| splits.len() > 1);
    (apart && several()).then_some(
        "it has no window, and reads several partitions, whose records come in any order",
    )
}
