//! Projections, and the real runs that a projection is compared with before it is believed.

use std::time::Duration;

use millstream_fabric::sim::Model;
use serde_json::{Value, json};

use super::failure::FlowResult;
use super::figure::FlowOptions;
use super::mover::{FlowPlan, Movement, Mover};
use super::price::{Price, median};
use super::real::moved;
use super::simulated::simulate;
use crate::round;

/// A projection that misses a real run by more is withheld.
pub(super) const MISS_MAX: f64 = 0.15;

/// Links that cost nothing: what the fabric of this machine costs is in the prices.
pub(super) const FREE: Model = Model {
    bytes_per_s: 1_000_000_000_000,
    messages_per_s: 1_000_000_000,
    latency: Duration::from_nanos(100),
    ..THESIS
};

/// The thesis' links: 11.64 GiB/s of 100 Gb/s (section 7.6). Latency and messages per second are
/// those of the simulation's default.
pub(super) const THESIS: Model = Model {
    bytes_per_s: 12_498_354_995,
    messages_per_s: 35_000_000,
    latency: Duration::from_micros(1),
    placement: millstream_fabric::sim::Placement::Whole,
    datagram_loss: 0.0,
    datagram_repeat: 0.0,
    datagram_delay: 0.0,
};

/// How far a projection is from real runs.
pub(super) struct Check {
    /// For the report.
    pub(super) json: Vec<Value>,
    /// Whether it may be shown.
    pub(super) holds: bool,
}

/// Compares the projection of a source and a thread of several targets with real runs, in one
/// process and in two.
pub(super) fn check<const W: usize>(
    plan: &FlowPlan,
    price: &Price,
    targets: u32,
    options: &FlowOptions,
) -> FlowResult<Check> {
    let mut check = Check { json: Vec::new(), holds: true };
    // Multicast is compared as a replication to one target: `shm` has none.
    let (movement, targets) = match plan.movement {
        Movement::Multicast => (Movement::Replicate, 1),
        other => (other, targets),
    };
    let (runs, bytes) = options.choose((1, 4 << 20), (5, 256 << 20));
    for processes in [1_u32, 2] {
        let movers = vec![
            Mover { node: 0, source: true, targets: 0 },
            Mover { node: processes - 1, source: false, targets },
        ];
        let plan = FlowPlan { movement, movers, ..plan.clone() }.with_bytes(bytes);
        let run = |_| Ok(moved(&plan)?.bytes_per_s(&plan));
        let measured = median((0..runs).map(run).collect::<FlowResult<Vec<f64>>>()?);
        let projected = simulate::<W>(&plan, price, FREE)?.bytes_per_s(&plan);
        let miss = projected / measured - 1.0;
        check.holds &= miss.abs() <= MISS_MAX;
        check.json.push(json!({
            "movement": plan.movement,
            "tuple_bytes": plan.tuple_bytes,
            "processes": processes,
            "measured_bytes_per_s": measured.round(),
            "projected_bytes_per_s": projected.round(),
            "miss": round(miss, 4),
        }));
    }
    Ok(check)
}
