//! Whether the rows of an output, and their order, depend on the input alone. Then a job that is
//! started again computes the same rows again.

use std::collections::BTreeSet;

use millstream_contract::plan::{Derived, Node, Operator, Plan, Source, Watermark};

/// Why the rows of an output, or their order, may be others when they are computed again; `None`:
/// they are the same.
pub(crate) fn why_rows_vary(plan: &Plan, output: usize) -> Option<&'static str> {
    let found = plan.outputs.get(output)?;
    let mut in_order = BTreeSet::new();
    of_node(plan, Node::Stage(found.stage), Some(&mut in_order))
        .or_else(|| of_order(in_order.into_iter().filter_map(|source| plan.sources.get(source))))
}

/// The same of the rows of a node. The sources whose records' order counts are added to `in_order`.
fn of_node(
    plan: &Plan,
    node: Node,
    mut in_order: Option<&mut BTreeSet<usize>>,
) -> Option<&'static str> {
    match node {
        Node::Source(number) | Node::Malformed(number) => {
            if let Some(sources) = in_order {
                sources.insert(number);
            }
            of_source(plan.sources.get(number)?)
        }
        Node::Stage(stage) => {
            let stage = plan.stages.get(stage)?;
            if matches!(stage.operator, Operator::Stateless { limit: Some(_), .. }) {
                return Some("it has a LIMIT");
            }
            // Windows put their rows into an order.
            let mut ordered = in_order.take().filter(|_| !stage.operator.has_state());
            let mut inputs = stage.inputs.iter();
            inputs.find_map(|input| of_node(plan, input.from, ordered.as_deref_mut()))
        }
    }
}

fn of_source(source: &Source) -> Option<&'static str> {
    let reads_clock = source.derived.iter().any(|derived| matches!(derived, Derived::ReadTime));
    let time = source.event_time.as_ref();
    if reads_clock || time.is_some_and(|time| matches!(time.watermark, Watermark::Clock)) {
        return Some("it reads the clock (PROCTIME)");
    }
    let idle = time.is_some_and(|time| time.idle_timeout_us.is_some());
    idle.then_some("a table has 'scan.watermark.idle-timeout', so the clock decides on windows")
}

/// The same of the order in which the records of these sources come.
fn of_order<'a>(sources: impl Iterator<Item = &'a Source>) -> Option<&'static str> {
    let (mut tables, mut splits, mut apart, mut live) = (0, 0, false, false);
    for source in sources {
        let is_apart = source.table.splits_are_apart();
        tables += 1;
        splits += match is_apart {
            true => source.table.splits().map_or(2, |splits| splits.len().max(1)),
            false => 1,
        };
        (apart, live) = (apart || is_apart, live || source.table.live());
    }
    if apart && splits > 1 {
        return Some(
            "it has no window, and reads several partitions, whose records come in any order",
        );
    }
    (live && tables > 1)
        .then_some("it has no window, and reads several tables, whose records come as they happen")
}
