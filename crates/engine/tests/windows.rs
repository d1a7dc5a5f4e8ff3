//! Windows that hop and cumulate, on the engine alone, against a model that decides record by
//! record for which of its windows it is late. Simulated runs draw everything from a seed:
//! `MILLSTREAM_SEEDS=100000` runs more seeds, `MILLSTREAM_SEED=7` only that one.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::support::*;
use millstream_contract::plan::{Cumulate, Hop, Window};
use millstream_contract::{Error, Settings};
use millstream_engine::Stats;

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
    let mut plan = windowed(source, window, delay_us);
    let packed = random.pick(&[1, 1, 2, 5, 64]);
    aggregate(&mut plan).windows_in_slice = packed;
    let (mut stats, rows) = run(&plan, &settings);
    let repeat = repeat(seed, "windows");
    let what = format!("seed {seed}: {window:?}, {packed} in a slice, {settings:?}\n{repeat}");
    let rows = rows.unwrap_or_else(|e| panic!("{what}: {e}"));
    same_rows(&rows, &expected, &what);
    assert_eq!((stats.late_records, stats.null_time_records), (late, null_time), "{what}");
    // Only the model knows of them.
    stats.malformed_records = partly;
    stats
}

#[test]
fn simulated_windows_agree_with_a_sequential_model() {
    let (seeds, sum) = run_seeds(220, simulate);
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

/// A record of this time and amount, all of one group.
fn counted(ts_ms: i64, amount: i64) -> Record {
    Record {
        ts_ms: Some(ts_ms),
        key: Some(7),
        name: "all".into(),
        amount: Some(amount),
        price: 1.0,
    }
}

/// Windows of 2 s every second. In the first split a record at 1.5 s comes when its watermark is
/// 2 s: it is late for [0, 2), which the second split, much slower, keeps from firing for a long
/// time, and it counts for [1, 3). Both splits have records of the same group in the same pane, in
/// time.
#[test]
fn a_record_late_for_one_window_is_never_in_it_however_long_that_stays_open() {
    let window = Window::Hop(Hop { slide_us: 1_000_000, size_us: 2_000_000, offset_us: 0 });
    let fast = [counted(1_100, 1), counted(2_000, 2), counted(1_500, 4), counted(5_000, 8)];
    let slow = [counted(100, 16), counted(1_600, 32), counted(2_900, 64), counted(6_000, 128)];
    let line = |start: i64, records: &[&Record]| {
        let [start_text, end] = [start, start + 2_000].map(time_text);
        format!("{start_text}|{end}|{}", group_line(Some(7), "all", records))
    };
    let expected = [
        line(-1_000, &[&slow[0]]),
        line(0, &[&slow[0], &fast[0], &slow[1]]),
        line(1_000, &[&fast[0], &slow[1], &fast[1], &fast[2], &slow[2]]),
        line(2_000, &[&fast[1], &slow[2]]),
        line(4_000, &[&fast[3]]),
        line(5_000, &[&fast[3], &slow[3]]),
        line(6_000, &[&slow[3]]),
    ];
    let (seeds, sum) = run_seeds(70, |seed| {
        let mut random = Random::new(seed);
        let mut script = |records: &[Record], pace_us: i64| {
            let batches = records.iter().flat_map(|record| {
                script::batches_of(std::slice::from_ref(record), &mut random, 1)
            });
            let paced = batches.enumerate().map(|(at, batch)| (at as i64 * pace_us, batch));
            script::Script { batches: paced.collect() }
        };
        let scripts = vec![script(&fast, 0), script(&slow, 50_000)];
        let source = Arc::new(script::Scripted::new(scripts, 0));
        let settings = Settings { simulate: Some(seed), ..drawn_settings(&mut random, 4, 0) };
        let (stats, rows) = run(&windowed(source, window, 0), &settings);
        let what = format!("seed {seed}: {settings:?}\n{}", repeat(seed, "windows"));
        same_rows(&rows.unwrap_or_else(|e| panic!("{what}: {e}")), &expected, &what);
        assert_eq!((stats.late_records, stats.partly_late_records), (0, 1), "{what}");
        stats
    });
    happened(seeds, &[("merges", sum.merges), ("fired while reading", sum.windows_fired_early)]);
}

/// Steps take a microsecond each in simulation. Windows that nothing is in take none, whether they
/// are those of 30 s or of a year, and all panes that the two records have are there, the last one
/// of each window empty.
#[test]
fn a_hole_takes_no_steps() {
    const YEAR_MS: i64 = 365 * 24 * 3_600_000;
    let windows = [
        Window::Hop(Hop { slide_us: 10_000, size_us: 30_000, offset_us: 0 }),
        Window::Cumulate(Cumulate { step_us: 10_000, size_us: 30_000, offset_us: 0 }),
    ];
    for (window, packed) in windows.into_iter().flat_map(|w| [1, 2, 8].map(|packed| (w, packed))) {
        for workers in [1, 3] {
            let elapsed = [30_000, YEAR_MS].map(|hole_ms| {
                let data = [vec![counted(5, 1), counted(hole_ms, 2)]];
                let source = table(&data, &mut Random::new(1), 1);
                let settings = Settings { workers, simulate: Some(3), ..Settings::default() };
                let mut plan = windowed(source, window, 0);
                aggregate(&mut plan).windows_in_slice = packed;
                let (stats, rows) = run(&plan, &settings);
                let (expected, ..) = model(&data, window, 0, 0);
                same_rows(&rows.unwrap(), &expected, &format!("{window:?}, {hole_ms} ms"));
                assert_eq!((expected.len(), stats.windows), (6, 6));
                stats.elapsed_us
            });
            let [short, long] = elapsed;
            assert!(long < 2 * short + 1_000, "{window:?}, {packed}: {elapsed:?} us");
        }
    }
}

/// What each of two splits has: a record each millisecond with a key of its own, of which one split
/// has the even and one the odd ones.
fn unique(count: i64) -> [Vec<Record>; 2] {
    [0, 1].map(|odd| {
        let record = |i| Record {
            ts_ms: Some(i),
            key: Some(2 * i + odd),
            name: "a name of some length, the same for all".into(),
            amount: Some(i),
            price: 0.25,
        };
        (0..count).map(record).collect()
    })
}

/// Windows that hop hold all panes of a window. With less memory than they take when there is
/// plenty, a job gets through with the right rows and within its budget, or it ends with the
/// budget's error, which some rows in the right order have come before. It never waits for ever:
/// simulated steps would find that nothing can go on.
#[test]
fn simulated_hopping_windows_with_scarce_memory() {
    const BLOCKS_BYTES: u64 = 384 << 10;
    let data = unique(6_000);
    let hop = Hop { slide_us: 200_000, size_us: 2_000_000, offset_us: 0 };
    let window = Window::Hop(hop);
    let (expected, ..) = model(&data, window, 0, 0);
    let [through, refused, stalls] = [(); 3].map(|()| Cell::new(0));
    let (seeds, _) = run_seeds(16, |seed| {
        let mut random = Random::new(seed);
        let source = table(&data, &mut random, 50);
        let plan = windowed(source, window, 0);
        let drawn = drawn_settings(&mut random, 3, 0);
        let free = Settings { simulate: Some(seed), batch_rows: 50, ..drawn };
        let (plenty, rows) = run(&plan, &free);
        same_rows(&rows.unwrap(), &expected, &format!("seed {seed}, with plenty of memory"));
        let eighths = random.pick(&[3, 5, 6, 7, 8, 12, 20]);
        let memory_bytes = plenty.memory_bytes_peak * eighths / 8;
        let tight = Settings { memory_bytes, ..free };
        let (stats, rows) = run(&plan, &tight);
        let what = format!("seed {seed}: {tight:?}\n{}", repeat(seed, "windows"));
        let peak = stats.memory_bytes_peak;
        // Rows looked at ahead while others are merged take a 32nd at the most, and a few rows.
        // Each worker fires a block of up to 4,096 rows before it asks for their room.
        assert!(peak <= memory_bytes / 32 * 33 + BLOCKS_BYTES, "{what}: {peak} bytes");
        match rows {
            Ok(rows) => {
                same_rows(&rows, &expected, &what);
                through.set(through.get() + 1);
                stalls.set(stalls.get() + stats.memory_stalls);
            }
            // A batch, or a step of firing, may take more at once than this job ever held.
            Err(Error::Memory { budget, batch_rows, .. })
                if budget == memory_bytes && (eighths < 20 || batch_rows.is_some()) =>
            {
                refused.set(refused.get() + 1);
            }
            Err(error) => panic!("{what}: {error}"),
        }
        stats
    });
    let [through, refused, stalls] = [through, refused, stalls].map(|count| count.get());
    happened(seeds, &[("through", through), ("refused", refused), ("stalls", stalls)]);
}
