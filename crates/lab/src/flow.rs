//! `millstream-lab bench flow FIGURE`: the figures of the thesis on flows (Thostrup, *Towards
//! Network-Accelerated Databases*, 2023, chapter 7), each with the relation that it has to show.
//!
//! A figure comes from real runs between processes of this machine over `shm`, or from a simulated
//! network whose threads have virtual clocks. The clocks go by prices that are measured here and
//! printed. A projection is first compared with real runs of one and of two processes. If the
//! projection misses one of the runs by more than 15 %, it is withheld.

mod bandwidth;
mod bare;
mod clocks;
mod combine;
mod combining;
mod consensus;
mod exchange;
mod failure;
mod figure;
mod job;
mod join;
mod joins;
mod latency;
mod member;
mod memory;
mod mover;
mod moving;
mod part;
mod ping;
mod price;
mod projection;
mod real;
mod scale;
mod simulated;
mod tally;
mod tuples;

use serde_json::{Map, Value, json};

pub use self::failure::FlowFailure;
use self::figure::Findings;
pub use self::figure::{Figure, FlowOptions};
pub use self::member::{FlowMember, FlowTask};
pub use self::tally::Tally;
use crate::failure::{fail, print, usage};
use crate::{Failure, provenance};

/// Measures a figure, and prints what came out.
pub(crate) fn run(figure: Figure, options: &FlowOptions, as_json: bool) -> Result<(), Failure> {
    let found = match figure {
        Figure::ShuffleBandwidth => bandwidth::shuffle(options),
        Figure::ShuffleScale => scale::measure(options),
        Figure::ReplicateBandwidth => bandwidth::replicate(options),
        Figure::ShuffleLatency => latency::shuffle(options),
        Figure::ReplicateLatency => latency::replicate(options),
        Figure::Combine => combine::measure(options),
        Figure::Memory => memory::measure(options),
        Figure::PointToPoint => exchange::point_to_point(options),
        Figure::Collective => exchange::collective(options),
        Figure::Straggler => exchange::straggler(options),
        Figure::Join => joins::measure(options),
        Figure::Consensus => consensus::measure(options),
    };
    let found = found.map_err(|failure| match failure {
        FlowFailure::Option(_) => usage(&failure),
        FlowFailure::Process(reason) => Failure::Process(reason),
        other => fail(&other),
    })?;
    match as_json {
        true => print(&Value::Object(object(figure, options, found)).to_string()),
        false => print(&found.text(figure)),
    }
}

fn object(figure: Figure, options: &FlowOptions, found: Findings) -> Map<String, Value> {
    let mut object = Map::new();
    let mut put = |key: &str, value: Value| object.insert(key.to_string(), value);
    put("bench", json!("flow"));
    put("figure", json!(figure.name()));
    put("short", json!(options.short));
    put("points", Value::Array(found.points));
    for (key, value) in found.more {
        put(key, value);
    }
    put("relations", json!(found.relations));
    // A wrong answer is no finding.
    put("ok", json!(true));
    for (key, value) in provenance::fields() {
        put(key, value);
    }
    object
}
