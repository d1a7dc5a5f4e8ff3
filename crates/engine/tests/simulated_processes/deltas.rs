//! What several processes count together: the bytes in flight between them, and the numbers of a
//! split's records.

use std::sync::Arc;

use arrow::datatypes::Schema;
use millstream_contract::Settings;
use millstream_contract::expr::Expr;
use millstream_contract::plan::Plan;
use millstream_contract::settings::FragmentMode;
use millstream_contract::sink::RowOrder;
use millstream_contract::table::Sharing;
use millstream_engine::simulation::Scenario;

use super::{Same, led_by_the_second, record_of, run};
use crate::support::script::{Script, Scripted, batches_of};
use crate::support::{Random, Record, aggregate, query, records};

/// The greatest name of each key, by window.
fn greatest_by_key(source: Scripted) -> Plan {
    let mut query = query(Arc::new(source), Some(1000), 0);
    let aggregate = aggregate(&mut query);
    aggregate.keys.truncate(1);
    aggregate.keys[0].nullable = false;
    aggregate.aggregates = vec![aggregate.aggregates[3].clone()];
    let fields = [0, 1, 2, 3, 8].map(|i| aggregate.fired.field(i).clone());
    aggregate.fired = Arc::new(Schema::new(fields.to_vec()));
    aggregate.project = [3, 4].map(Expr::Column).to_vec();
    let output = aggregate.fired.project(&[3, 4]).unwrap();
    query.stages[0].output = Arc::new(output);
    query
}

/// Bytes of texts that have come with a delta count as long as it is merged, and no longer. State
/// is *at rest* only while nothing is on its way: bytes left over would show as no rest at all.
#[test]
fn bytes_of_segments_return_to_zero_after_every_delta_with_texts() {
    let _same = Same("bytes_of_segments_return_to_zero_after_every_delta_with_texts");
    const WINDOWS: usize = 12;
    let keys = led_by_the_second(20 * WINDOWS);
    let name = |key| format!("a text that has to stand in an arena, {key}");
    // Each window has more keys than the one before, and so the greatest rest so far. Process 0
    // reads all of them, process 1 leads them.
    let window = |window: usize| -> Vec<Record> {
        let keys = &keys[..20 * (window + 1)];
        let ts_ms = Some(1000 * window as i64);
        keys.iter().map(|key| Record { ts_ms, name: name(key), ..record_of(*key) }).collect()
    };
    let batches = |w| batches_of(&window(w), &mut Random::new(5), 1_000);
    let at = |w: usize| move |batch| (w as i64 * 1_000_000, batch);
    let batches = (0..WINDOWS).flat_map(|w| batches(w).into_iter().map(at(w))).collect();
    let scripts = vec![Script { batches }, Script { batches: Vec::new() }];
    let query = greatest_by_key(Scripted::new(scripts, 0));
    let scenario = Scenario { slowness: vec![1; 2], ..Scenario::from_seed(3, 2) };
    for fragment_mode in [FragmentMode::Aggregate, FragmentMode::PassThrough] {
        let settings = Settings { workers: 1, fragment_mode, ..Settings::default() };
        let ran = run(&query, &settings, &scenario, RowOrder::Any);
        let rows = |w: usize| &keys[..20 * (w + 1)];
        let row = |key| format!("{key}|{}", name(key));
        let mut expected: Vec<_> = (0..WINDOWS).flat_map(rows).map(row).collect();
        expected.sort();
        ran.is_all(&expected, &format!("{fragment_mode:?}"));
        let (stats, _) = ran.outcomes[1].as_ref().unwrap();
        assert_eq!(stats.records, 0, "it has no input");
        assert!(stats.merges >= WINDOWS as u64, "{stats:?}");
        // The last windows were at rest, too: a row has a word of key and two of text.
        let row_bytes = 8 * 3 + name(&keys[0]).len();
        let most_bytes = (row_bytes * keys.len()) as u64;
        assert!(stats.state_live_bytes_rest > most_bytes / 10 * 9, "{fragment_mode:?}: {stats:?}");
    }
}

/// A record that has no usable time is named by its number in its split, which processes that read
/// the split together agree on.
#[test]
fn places_of_records_agree_over_processes() {
    let _same = Same("places_of_records_agree_over_processes");
    for (seed, null_at) in [(1, 0), (2, 7), (3, 250), (4, 398), (5, 399)] {
        let mut random = Random::new(seed);
        let mut data = records(&mut random, 2, 400, 50);
        for (i, record) in data.iter_mut().flatten().enumerate() {
            record.ts_ms = (i != 400 + null_at).then_some(i as i64 % 400);
        }
        let script = |records: &Vec<Record>| Script {
            batches: batches_of(records, &mut Random::new(seed), 30)
                .into_iter()
                .map(|batch| (0, batch))
                .collect(),
        };
        for processes in [1, 2, 3] {
            let scripts = data.iter().map(script).collect();
            let source = Arc::new(Scripted::new(scripts, 0).shared(Sharing::ByChunk));
            let settings = Settings { workers: 1, ..Settings::default() };
            let scenario = Scenario::from_seed(seed, processes);
            let ran =
                run(&query(source, Some(1000), 0), &settings, &scenario, RowOrder::Deterministic);
            let (what, stats) = (format!("{processes} processes, record {null_at}"), ran.stats());
            assert!(ran.well(), "{what}: {:?}", ran.errors());
            assert_eq!(stats.null_time_records, 1, "{what}");
            let place = stats.first_null_time.map(|first| first.place);
            assert_eq!(place, Some(format!("script, record {}", null_at + 1)), "{what}");
        }
    }
}
