//! Windows that hop and cumulate, on the engine alone, against a model that decides record by
//! record for which of its windows it is late. Simulated runs draw everything from a seed:
//! `MILLSTREAM_SEEDS=100000` runs more seeds, `MILLSTREAM_SEED=7` only that one.

mod support;

use std::collections::BTreeMap;

use millstream_contract::Settings;
use millstream_contract::plan::{Cumulate, Hop, Window};
use millstream_engine::Stats;
use support::*;

/// Start and end of the windows that a time (in milliseconds) lies in, in order of their ends.
fn windows_of(window: Window, ts: i64) -> Vec<(i64, i64)> {
    let ms = |us: i64| us / 1000;
    match window {
        Window::Hop(Hop { slide_us, size_us, offset_us }) => {
            let (slide, size, offset) = (ms(slide_us), ms(size_us), ms(offset_us));
            let last = (ts - offset).div_euclid(slide) * slide + offset;
            let starts = (0..).map(|i| last - i * slide).take_while(|start| start + size > ts);
            let mut windows: Vec<_> = starts.map(|start| (start, start + size)).collect();
            windows.reverse();
            windows
        }
        Window::Cumulate(Cumulate { step_us, size_us, offset_us }) => {
            let (step, size, offset) = (ms(step_us), ms(size_us), ms(offset_us));
            let start = (ts - offset).div_euclid(size) * size + offset;
            let ends = (1..=size / step).map(|i| start + i * step);
            ends.filter(|end| *end > ts).map(|end| (start, end)).collect()
        }
        other => panic!("{other:?}"),
    }
}

/// What the query must return, and how many records are late for all their windows, late for some,
/// and without a time.
fn model(
    splits: &[Vec<Record>],
    window: Window,
    delay_us: i64,
    lateness_ms: i64,
) -> (Vec<String>, u64, u64, u64) {
    type Key<'a> = (i64, i64, bool, Option<i64>, &'a str);
    let mut groups: BTreeMap<Key<'_>, Vec<&Record>> = BTreeMap::new();
    let (mut late, mut partly, mut null_time) = (0, 0, 0);
    for split in splits {
        let mut watermark = i64::MIN;
        for record in split {
            let Some(ts) = record.ts_ms else {
                null_time += 1;
                continue;
            };
            let before = watermark;
            watermark = watermark.max(ts * 1000 - delay_us);
            let windows = windows_of(window, ts);
            let open = windows.iter().filter(|(_, end)| (end + lateness_ms) * 1000 > before);
            let open: Vec<_> = open.collect();
            late += u64::from(open.is_empty());
            partly += u64::from(!open.is_empty() && open.len() < windows.len());
            for (start, end) in open {
                let key = (*end, *start, record.key.is_none(), record.key, record.name.as_str());
                groups.entry(key).or_default().push(record);
            }
        }
    }
    let rows = groups.into_iter().map(|((end, start, _, key, name), group)| {
        let line = group_line(key, name, &group);
        format!("{}|{}|{line}", time_text(start), time_text(end))
    });
    (rows.collect(), late, partly, null_time)
}

fn any_window(random: &mut Random) -> Window {
    let unit_us = random.pick(&[1_000, 20_000, 100_000, 1_000_000]);
    let panes = random.pick(&[1, 2, 3, 7, 60]);
    let size_us = unit_us * panes;
    match random.below(2) {
        0 => {
            let offset_us = random.below((unit_us / 1000) as u64) as i64 * 1000;
            Window::Hop(Hop { slide_us: unit_us, size_us, offset_us })
        }
        _ => {
            let offset_us = random.below((size_us / 1000) as u64) as i64 * 1000;
            Window::Cumulate(Cumulate { step_us: unit_us, size_us, offset_us })
        }
    }
}

/// One seed's job: everything about it follows from the seed.
fn simulate(seed: u64) -> Stats {
    let mut random = Random::new(seed);
    let splits = 1 + random.below(3) as usize;
    let per_split = random.pick(&[0, 1, 40, 300]);
    let keys = random.pick(&[1, 5, 60, 100_000]);
    let mut data = records(&mut random, splits, per_split, keys);
    // Some splits have a hole, some a record far ahead.
    for split in &mut data {
        let (from, hole) = (random.below(300), random.pick(&[0, 0, 2_000, 70_000]));
        for record in split.iter_mut().skip(from as usize) {
            record.ts_ms = record.ts_ms.map(|ts| ts + hole);
        }
    }
    let window = any_window(&mut random);
    let delay_us = random.pick(&[0, 1, 100_000, 2_999_999]);
    let lateness = random.pick(&[0, 0, 700]);
    let batch_rows = random.pick(&[1, 20, 300]);
    let source = table(&data, &mut random, batch_rows);
    let settings = Settings { simulate: Some(seed), ..drawn_settings(&mut random, 4, lateness) };
    let (expected, late, partly, null_time) = model(&data, window, delay_us, lateness);
    let (mut stats, rows) = run(&windowed(source, window, delay_us), &settings);
    let what = format!("seed {seed}: {window:?} {settings:?}\n{}", repeat(seed, "windows"));
    let rows = rows.unwrap_or_else(|e| panic!("{what}: {e}"));
    same_rows(&rows, &expected, &what);
    assert_eq!((stats.late_records, stats.null_time_records), (late, null_time), "{what}");
    // Only the model knows of them.
    stats.malformed_records = partly;
    stats
}

#[test]
fn simulated_windows_agree_with_a_sequential_model() {
    let (seeds, sum) = run_seeds(1000, simulate);
    happened(
        seeds,
        &[
            ("epochs", sum.epochs),
            ("late records", sum.late_records),
            ("records late for some windows", sum.malformed_records),
            ("windows fired while reading", sum.windows_fired_early),
            ("merges", sum.merges),
        ],
    );
}
