//! Windows that overlap, and sessions. Records are first added up by pane and key: a pane is as
//! wide as windows are apart or, of sessions, as their gap, so that all records of a key in a pane
//! are of one session. Then the panes of each key are passed in their order. So the time is that
//! for the records plus that for the rows, and memory is for panes.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasher, RandomState};

use super::{BuildFold, Group, Row, records};
use crate::spec::Spec;
use crate::window::WindowKind;

/// The records of a key in a pane.
#[derive(Debug, Clone, Copy)]
struct Pane {
    key: u64,
    /// The pane begins so many times its width after time 0.
    number: u64,
    /// Times of its first and its last record, ms.
    first: u64,
    last: u64,
    group: Group,
}

/// Hands over the rows of `spec`, whose windows do not tumble, over those records that are `dealt`
/// to a split.
pub(super) fn rows(spec: &Spec, dealt: impl Fn(u64, u64) -> bool, mut take: impl FnMut(Row)) {
    let length = spec.window_ms;
    let width = match spec.windows {
        WindowKind::Hop { slide_ms } => slide_ms,
        WindowKind::Cumulate { step_ms } => step_ms,
        WindowKind::Tumble | WindowKind::Session => length,
    };
    let panes = panes(spec, dealt, width);
    for panes in panes.chunk_by(|a, b| a.key == b.key) {
        match spec.windows {
            WindowKind::Hop { .. } => hop(panes, length, width, &mut take),
            WindowKind::Cumulate { .. } => cumulate(panes, length, width, &mut take),
            WindowKind::Tumble | WindowKind::Session => sessions(panes, length, &mut take),
        }
    }
}

/// The panes by key, and each key's in their order.
fn panes(spec: &Spec, dealt: impl Fn(u64, u64) -> bool, width: u64) -> Vec<Pane> {
    let hasher = BuildFold(RandomState::new().hash_one(1u64) | 1);
    let mut at: HashMap<(u64, u64), usize, BuildFold> = HashMap::with_hasher(hasher);
    let mut panes: Vec<Pane> = Vec::new();
    records(spec, dealt, |(ts, key, group)| {
        let number = ts / width;
        match at.entry((number, key)) {
            Entry::Occupied(entry) => {
                let pane = &mut panes[*entry.get()];
                pane.first = pane.first.min(ts);
                pane.last = pane.last.max(ts);
                pane.group.add(&group);
            }
            Entry::Vacant(entry) => {
                entry.insert(panes.len());
                panes.push(Pane { key, number, first: ts, last: ts, group });
            }
        }
    });
    drop(at);
    panes.sort_unstable_by_key(|pane| (pane.key, pane.number));
    panes
}

/// The rows of a key: a window ends with each pane from its first to the last that a window with
/// its last pane has.
fn hop(panes: &[Pane], length: u64, slide: u64, take: &mut impl FnMut(Row)) {
    let of_window = length / slide;
    // Those of the window are `panes[from..to]`.
    let (mut from, mut to) = (0, 0);
    let mut group = Group::default();
    let mut last = panes[0].number;
    while from < panes.len() {
        if to < panes.len() && panes[to].number == last {
            group.add(&panes[to].group);
            to += 1;
        }
        if panes[from].number + of_window == last {
            let gone = panes[from].group;
            from += 1;
            if group.price_max == 0 || gone.price_max < group.price_max {
                // Exact, since all sums are.
                group.count -= gone.count;
                group.cpu_sum -= gone.cpu_sum;
            } else {
                group = Group::default();
                panes[from..to].iter().for_each(|pane| group.add(&pane.group));
            }
        }
        if from < to {
            let start = ((last + 1) * slide) as i64 - length as i64;
            take(Row { start, end: None, key: panes[0].key, group });
            last += 1;
        } else if let Some(next) = panes.get(from) {
            last = next.number;
        }
    }
}

/// The rows of a key: those of a window's panes up to each of its ends.
fn cumulate(panes: &[Pane], length: u64, step: u64, take: &mut impl FnMut(Row)) {
    let of_window = length / step;
    let window = |pane: &Pane| pane.number / of_window;
    for panes in panes.chunk_by(|a, b| window(a) == window(b)) {
        let first = window(&panes[0]) * of_window;
        let mut group = Group::default();
        let mut rest = panes.iter().peekable();
        for number in panes[0].number..first + of_window {
            if let Some(pane) = rest.next_if(|pane| pane.number == number) {
                group.add(&pane.group);
            }
            let (start, end) = ((first * step) as i64, Some(((number + 1) * step) as i64));
            take(Row { start, end, key: panes[0].key, group });
        }
    }
}

/// The rows of a key: panes whose records are at most the gap apart are of one session.
fn sessions(panes: &[Pane], gap: u64, take: &mut impl FnMut(Row)) {
    for panes in panes.chunk_by(|a, b| b.first - a.last <= gap) {
        let mut group = Group::default();
        panes.iter().for_each(|pane| group.add(&pane.group));
        let end = panes.iter().map(|pane| pane.last).max().map(|last| (last + gap) as i64);
        take(Row { start: panes[0].first as i64, end, key: panes[0].key, group });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Workload;

    /// The rows by the definitions: a record is in every window that holds its time, and in the
    /// session of all that are at most a gap from one to the next.
    fn by_definition(spec: &Spec, dealt: impl Fn(u64, u64) -> bool) -> Vec<Row> {
        let length = spec.window_ms as i64;
        let mut groups: HashMap<(i64, i64, u64), Group> = HashMap::new();
        let mut by_key: HashMap<u64, Vec<(i64, Group)>> = HashMap::new();
        records(spec, dealt, |(ts, key, add)| {
            let ts = ts as i64;
            let mut windows = Vec::new();
            match spec.windows {
                WindowKind::Hop { slide_ms } => {
                    let first = (ts - length) / slide_ms as i64 - 1;
                    let starts = (first..).map(|n| n * slide_ms as i64);
                    windows.extend(starts.take_while(|s| *s <= ts).map(|s| (s, s + length)));
                }
                WindowKind::Cumulate { step_ms } => {
                    let start = ts / length * length;
                    let ends = (1..=length / step_ms as i64).map(|n| start + n * step_ms as i64);
                    windows.extend(ends.map(|end| (start, end)));
                }
                WindowKind::Tumble | WindowKind::Session => {
                    by_key.entry(key).or_default().push((ts, add))
                }
            }
            for (start, end) in windows {
                if (start..end).contains(&ts) {
                    groups.entry((start, end, key)).or_default().add(&add);
                }
            }
        });
        let cumulate = matches!(spec.windows, WindowKind::Cumulate { .. });
        let row =
            |((start, end, key), group)| Row { start, end: cumulate.then_some(end), key, group };
        let mut rows: Vec<Row> = groups.into_iter().map(row).collect();
        for (key, mut of_key) in by_key {
            of_key.sort_by_key(|(ts, _)| *ts);
            for session in of_key.chunk_by(|a, b| b.0 - a.0 <= length) {
                let mut group = Group::default();
                session.iter().for_each(|(_, add)| group.add(add));
                let end = session.last().map(|(ts, _)| ts + length);
                rows.push(Row { start: session[0].0, end, key, group });
            }
        }
        rows
    }

    #[test]
    fn rows_by_panes_are_those_of_the_definitions() {
        let windows = [
            "hop:60s:1s",
            "hop:14s:7s",
            "hop:10s:10s",
            "hop:30ms:1ms",
            "hop:1h:1m",
            "cumulate:60s:1s",
            "cumulate:14s:7s",
            "cumulate:5ms:1ms",
            "cumulate:3s:3s",
            "session:1ms",
            "session:2ms",
            "session:700ms",
            "session:5s",
            "session:1h",
        ];
        let mut gaps = 0;
        for workload in [Workload::Cm, Workload::Nb7, Workload::YsbSmall, Workload::YsbStr] {
            for (i, window) in windows.iter().enumerate() {
                for (records, span_ms) in [(1, 9), (3_001, 40), (3_001, 70_000), (901, 500_000)] {
                    let (keys, seed) = (Some([1, 3, 40, 700][i % 4]), 11 + i as u64);
                    let spec = Spec { records, keys, seed, span_ms, ..Spec::new(workload) };
                    let spec = spec.with_window(window.parse().expect("a window"));
                    for splits in [1, 3] {
                        let sort = |mut rows: Vec<Row>| {
                            rows.sort_by_key(|row| (row.key, row.start, row.end));
                            rows
                        };
                        let mut found = Vec::new();
                        rows(&spec, |i, _| i % splits == 0, |row| found.push(row));
                        let found = sort(found);
                        let right = sort(by_definition(&spec, |i, _| i % splits == 0));
                        assert_eq!(found, right, "{spec:?}, {splits} splits");
                        let next = |a: &Row, b: &Row| a.key == b.key && a.start + 60_000 < b.start;
                        gaps += found.windows(2).filter(|two| next(&two[0], &two[1])).count();
                    }
                }
            }
        }
        assert!(gaps > 100, "windows without records between others: {gaps}");
    }
}
