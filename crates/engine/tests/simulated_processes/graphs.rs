//! Plans of any shape on several processes.

use millstream_contract::Settings;
use millstream_contract::sink::RowOrder;
use millstream_engine::Stats;
use millstream_engine::simulation::Scenario;

use super::memory::refused;
use super::{described, faults, happened, run_all, run_outputs, seeds};
use crate::support::graph::Graph;
use crate::support::{Random, drawn_settings, packed};

#[derive(Default)]
struct Came {
    stats: Stats,
    failed: u64,
    survived: u64,
    unions: u64,
    outputs: u64,
    limited: u64,
    through: u64,
    refused: u64,
}

/// Budgets of jobs with scarce memory.
const SCARCE_BYTES: [u64; 4] = [30_000, 100_000, 300_000, 1_000_000];

/// One seed's job: everything about it follows from the seed.
fn run_seed(seed: u64, with_faults: bool, scarce: bool) -> Came {
    let mut random = Random::new(seed ^ 0x6a49_0000);
    let processes = 2 + random.below(3) as usize;
    let graph = Graph::any(&mut random);
    let drawn = drawn_settings(&mut random, 3, graph.lateness_ms);
    let settings = Settings {
        memory_bytes: match scarce {
            true => SCARCE_BYTES[(seed % 4) as usize],
            false => Settings::default().memory_bytes,
        },
        ..drawn
    };
    let mut scenario = Scenario::from_seed(seed, processes);
    if with_faults {
        scenario.faults = faults(&mut random, processes);
    }
    let test = match (with_faults, scarce) {
        (true, _) => "faults_end_a_graph",
        (false, true) => "scarce_memory_ends_a_graph",
        (false, false) => "graphs_agree",
    };
    let what = format!("{graph:?}\n{}", described(seed, test, &settings, &scenario));
    let any = random.below(4) == 0 && !graph.has_limit();
    let order = if any { RowOrder::Any } else { RowOrder::Deterministic };
    let expected = graph.expected();
    let rows = run_outputs(&packed(graph.plan(), seed), &settings, &scenario, order);
    let mut came = Came::default();
    if scarce && !rows[0].well() {
        refused(&rows[0], settings.memory_bytes, &what);
        came.refused = 1;
    }
    for (output, (ran, expected_rows)) in rows.iter().zip(&expected.rows).enumerate() {
        let mut expected_rows = expected_rows.clone();
        if order == RowOrder::Any {
            expected_rows.sort();
        }
        let what = format!("{what}\n  output {output}");
        match (with_faults || scarce) && !ran.well() {
            true if scarce => ran.rows_begin(&expected_rows, &what),
            true => came.failed += ran.ends_with_a_fault(None, &expected_rows, &what),
            false => ran.is_all(&expected_rows, &what),
        }
    }
    let Some(ran) = rows.first().filter(|ran| ran.well()) else { return came };
    let stats = ran.stats();
    if !graph.has_limit() {
        let counted = (stats.records, stats.late_records, stats.null_time_records);
        let expected = (expected.records, expected.late, expected.null_time);
        assert_eq!(counted, expected, "{what}");
    }
    Came {
        survived: u64::from(ran.survived()),
        through: 1,
        unions: graph.stops.iter().map(|stop| stop.takes.len() as u64 - 1).sum(),
        outputs: graph.outputs.len() as u64 - 1,
        limited: u64::from(graph.has_limit()),
        stats,
        ..came
    }
}

fn sum(all: &[Came]) -> Came {
    let mut sum = Came::default();
    for one in all {
        sum.stats.add_process(&one.stats);
        sum.failed += one.failed;
        sum.survived += one.survived;
        sum.unions += one.unions;
        sum.outputs += one.outputs;
        sum.limited += one.limited;
        sum.through += one.through;
        sum.refused += one.refused;
    }
    sum
}

#[test]
fn graphs_agree_with_a_sequential_run() {
    const REGRESSIONS: &[u64] = &[];
    let seeds = seeds(30, REGRESSIONS);
    let Came { stats, unions, outputs, limited, .. } =
        sum(&run_all(&seeds, |seed| run_seed(seed, false, false)));
    happened(
        &seeds,
        &[
            ("unions", unions),
            ("further outputs", outputs),
            ("limits", limited),
            ("rows between stages", stats.inner_rows),
            ("rows sent", stats.rows_sent),
            ("rows passed straight into slots", stats.rows_passed),
            ("windows fired while reading", stats.windows_fired_early),
            ("late records", stats.late_records),
            ("credit stalls", stats.credit_stalls),
        ],
    );
}

#[test]
fn faults_end_a_graph_or_change_nothing() {
    const REGRESSIONS: &[u64] = &[];
    let seeds = seeds(23, REGRESSIONS);
    let Came { failed, survived, .. } = sum(&run_all(&seeds, |seed| run_seed(seed, true, false)));
    happened(&seeds, &[("failed", failed), ("survived", survived)]);
}

/// Nobody waits for ever: who has no memory gets some, or the job ends with the budget's error.
#[test]
fn scarce_memory_ends_a_graph_or_changes_nothing() {
    const REGRESSIONS: &[u64] = &[86, 229, 357, 441, 1407, 2644];
    let seeds = seeds(12, REGRESSIONS);
    let Came { through, refused, stats, .. } =
        sum(&run_all(&seeds, |seed| run_seed(seed, false, true)));
    happened(
        &seeds,
        &[("got through", through), ("refused", refused), ("memory stalls", stats.memory_stalls)],
    );
    assert!(
        through >= seeds.len() as u64 / 2 || seeds.len() == 1,
        "{through} of {} get through",
        seeds.len()
    );
}
