//! Windows of many panes on two processes. What a process that is ahead passes on belongs to
//! windows that the other has open, too. However many panes these have, the channel does not stand
//! still.

use std::sync::Arc;
use std::time::Duration;

use millstream_contract::Settings;
use millstream_contract::plan::{Hop, Tumble, Window};
use millstream_contract::settings::FragmentMode;
use millstream_contract::sink::RowOrder;
use millstream_engine::Stats;
use millstream_engine::simulation::Scenario;
use millstream_flow::channel::Settings as Channels;

use super::{Same, run};
use crate::support::script::{Script, Scripted, batches_of};
use crate::support::{Random, Record, windowed};

/// Panes of a window, and records of each split in a pane, with keys of their own.
const PANES: i64 = 60;
const RECORDS: i64 = 40;
const PANE_MS: i64 = 1_000;

/// The records of 59 panes.
fn split(number: i64) -> Vec<Record> {
    let record = |i| Record {
        ts_ms: Some(i * PANE_MS / RECORDS),
        key: Some(i * 2 + number),
        name: "n".into(),
        amount: None,
        price: 1.0,
    };
    (0..(PANES - 1) * RECORDS).map(record).collect()
}

/// Runs the job with a first process that takes so many steps where the second takes one; what both
/// came to, from several seeds.
fn run_seeds(window: Window, speed: u32) -> Vec<[Stats; 2]> {
    let script = |records: Vec<Record>| {
        let batches = batches_of(&records, &mut Random::new(9), 20);
        Script { batches: batches.into_iter().map(|batch| (0, batch)).collect() }
    };
    let source = || Arc::new(Scripted::new([0, 1].map(|n| script(split(n))).into(), 0));
    let settings = Settings {
        workers: 1,
        batch_rows: 20,
        fragment_mode: FragmentMode::PassThrough,
        allowed_lateness_us: 2 * PANES * PANE_MS * 1000,
        ..Settings::default()
    };
    let plan = windowed(source(), window, 0);
    let alone = Scenario { slowness: vec![1], ..Scenario::from_seed(0, 1) };
    let expected = run(&plan, &settings, &alone, RowOrder::Deterministic).rows;
    let run_seed = |seed| {
        // A few rows fill the ring.
        let channels = Channels { slots: 4, slot_bytes: 1024, ..Channels::default() };
        let scenario = Scenario {
            slowness: vec![1, speed],
            channels,
            latency: Duration::from_micros(1),
            ..Scenario::from_seed(seed, 2)
        };
        let ran = run(&plan, &settings, &scenario, RowOrder::Deterministic);
        ran.is_all(&expected, &format!("seed {seed}"));
        assert!(ran.stats().rows_passed > 0, "rows were passed through");
        let stats: Vec<Stats> = ran.outcomes.into_iter().flatten().map(|(s, _)| s).collect();
        stats.try_into().expect("two processes")
    };
    (0..5).map(run_seed).collect()
}

/// How often the fast process found no room in its channel.
fn stalls(stats: &[[Stats; 2]]) -> u64 {
    stats.iter().map(|[fast, _]| fast.credit_stalls).sum()
}

/// Of a tumbling window as long, both processes are in the same one all the time. Late records are
/// waited for, so that no window fires before the end: that hopping windows have 59 panes, most of
/// which the slow process has not reached, makes no great difference to how long the fast one
/// waits. (Of panes that lie more than half a window ahead it does wait; if it waited for each pane
/// that the other has not reached, it would stall four times as often as with a tumbling window.)
#[test]
fn a_channel_does_not_stand_still_while_59_panes_are_open() {
    let _same = Same("a_channel_does_not_stand_still_while_59_panes_are_open");
    let (slide_us, size_us) = (PANE_MS * 1000, PANES * PANE_MS * 1000);
    let hop = Window::Hop(Hop { slide_us, size_us, offset_us: 0 });
    let tumble = Window::Tumble(Tumble { size_us, offset_us: 0 });
    for speed in [1, 3] {
        let (hopping, tumbling) =
            (stalls(&run_seeds(hop, speed)), stalls(&run_seeds(tumble, speed)));
        assert!(
            hopping <= 3 * tumbling + 200,
            "a process {speed} times as fast: {hopping} stalls, {tumbling} of a tumbling window"
        );
    }
}
