//! Whether the rows of an output, and their order, depend on the input alone. Then a job that is
//! started again computes the same rows again.

use std::collections::BTreeSet;

use millstream_contract::plan::{Derived, Node, Operator, Plan, Source, Watermark};
use millstream_contract::settings::{MaxAhead, Settings};

/// Why the rows of an output, or their order, may be others when they are computed again; `None`:
/// they are the same.
pub(crate) fn why_rows_vary(
    plan: &Plan,
    settings: &Settings,
    output: usize,
) -> Option<&'static str> {
    let found = plan.outputs.get(output)?;
    let mut in_order = BTreeSet::new();
    of_node(plan, settings, Node::Stage(found.stage), Some(&mut in_order))
        .or_else(|| of_order(in_order.into_iter().filter_map(|source| plan.sources.get(source))))
}

/// The same of the rows of a node. The sources whose records' order counts are added to `in_order`.
fn of_node(
    plan: &Plan,
    settings: &Settings,
    node: Node,
    mut in_order: Option<&mut BTreeSet<usize>>,
) -> Option<&'static str> {
    match node {
        Node::Source(number) | Node::Malformed(number) => {
            if let Some(sources) = in_order {
                sources.insert(number);
            }
            of_source(plan.sources.get(number)?, settings)
        }
        Node::Stage(stage) => {
            let stage = plan.stages.get(stage)?;
            if matches!(stage.operator, Operator::Stateless { limit: Some(_), .. }) {
                return Some("it has a LIMIT");
            }
            let is_lookup = matches!(stage.operator, Operator::Lookup(_));
            if is_lookup && settings.lookup_reload_us > 0 {
                return Some("it looks up rows of a table that may change ('lookup.reload')");
            }
            // Windows put their rows into an order.
            let mut ordered = in_order.take().filter(|_| !stage.operator.has_state());
            let mut inputs = stage.inputs.iter();
            inputs.find_map(|input| of_node(plan, settings, input.from, ordered.as_deref_mut()))
        }
    }
}

fn of_source(source: &Source, settings: &Settings) -> Option<&'static str> {
    let reads_clock = source.derived.iter().any(|derived| matches!(derived, Derived::ReadTime));
    let time = source.event_time.as_ref();
    if reads_clock || time.is_some_and(|time| matches!(time.watermark, Watermark::Clock)) {
        return Some("it reads the clock (PROCTIME)");
    }
    if time.is_some() && matches!(settings.max_ahead, MaxAhead::Us(_)) {
        return Some("'watermark.max_ahead' is set, so the clock decides on windows");
    }
    let idle = time.is_some_and(|time| time.idle_timeout_us.is_some());
    idle.then_some("a table has 'scan.watermark.idle-timeout', so the clock decides on windows")
        .or_else(|| source.table.varies())
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
