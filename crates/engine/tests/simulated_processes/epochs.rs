//! Epochs end even if input only trickles in. The changes of a process soon reach a leader in
//! another one, though no window fires and hardly any record has come.

use std::sync::Arc;

use millstream_contract::Settings;
use millstream_contract::settings::FragmentMode;
use millstream_contract::sink::RowOrder;
use millstream_engine::Stats;
use millstream_engine::simulation::Scenario;

use super::{Same, counted_by_key, led_by_the_second, record_of, run};
use crate::support::script::{Script, Scripted, batches_of};
use crate::support::{Random, Record};

const BATCHES: u64 = 20;
const SECOND_US: i64 = 1_000_000;

/// All records are read by process 0, a batch each second; all keys are led by process 1, which has
/// no input: what that one comes to.
fn leader(settings: &Settings) -> Stats {
    let keys = led_by_the_second(3);
    let records: Vec<Record> = keys.iter().copied().map(record_of).collect();
    let batch = || batches_of(&records, &mut Random::new(5), 100);
    let at = |i| move |batch| (i * SECOND_US, batch);
    let batches = (0..BATCHES as i64).flat_map(|i| batch().into_iter().map(at(i))).collect();
    let scripts = vec![Script { batches }, Script { batches: Vec::new() }];
    let query = counted_by_key(Arc::new(Scripted::new(scripts, 0)));
    let scenario = Scenario { slowness: vec![1; 2], ..Scenario::from_seed(3, 2) };
    let mut ran = run(&query, settings, &scenario, RowOrder::Any);
    let mut expected: Vec<String> = keys.iter().map(|key| format!("{key}|{BATCHES}")).collect();
    expected.sort();
    ran.is_all(&expected, &format!("{settings:?}"));
    let (stats, _) = ran.outcomes.remove(1).unwrap();
    assert_eq!(stats.records, 0, "it has no input");
    stats
}

#[test]
fn changes_reach_a_leader_elsewhere_after_the_longest_pause() {
    let _same = Same("changes_reach_a_leader_elsewhere_after_the_longest_pause");
    for fragment_mode in [FragmentMode::Aggregate, FragmentMode::PassThrough] {
        for (epoch_max_idle_ms, soon) in [(100, true), (900, true), (3_600_000, false)] {
            let settings =
                Settings { workers: 1, fragment_mode, epoch_max_idle_ms, ..Settings::default() };
            let stats = leader(&settings);
            // Now and then the simulation ends an epoch by itself.
            let expected = if soon { BATCHES..=BATCHES + 5 } else { 1..=BATCHES / 2 };
            assert!(expected.contains(&stats.merges), "{settings:?}: {} merges", stats.merges);
        }
    }
}
