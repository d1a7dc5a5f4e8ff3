//! One suite for every kind of flow, goal and fabric.

use std::time::Duration;

use millstream_dfi::{Bandwidth, Detection, Flow, Latency, Optimise, Pipelined, Route};
use millstream_fabric::Fabric;

use super::order::disorder;
use super::{Plan, Row, check, connect, run, threads};

/// Topologies, as sources and targets.
const TOPOLOGIES: [(usize, usize); 5] = [(1, 1), (3, 1), (1, 3), (2, 2), (3, 2)];

fn goals() -> [Optimise; 6] {
    let small =
        |segment, segments, source_segments| Bandwidth { segment, segments, source_segments };
    [
        small(256, 4, 2).into(),
        small(96, 1, 1).into(),
        Pipelined(small(256, 4, 2)).into(),
        Pipelined(small(96, 1, 1)).into(),
        Latency { segments: 8 }.into(),
        Latency { segments: 1 }.into(),
    ]
}

/// All kinds of flow and goals over these devices, on one thread.
pub(crate) fn suite<F: Fabric>(devices: &[F], tuples: u64, mut idle: impl FnMut(usize)) {
    let nodes = devices.len();
    let mut seed = 0;
    for (sources, targets) in TOPOLOGIES {
        let lists = (threads(sources, nodes, 0), threads(targets, nodes, 100));
        for goal in goals() {
            for detection in [Detection::Footer, Detection::Checksum] {
                for kind in ["key", "by", "explicit", "replicate", "ordered", "combine"] {
                    if kind == "combine" && targets > 1 {
                        continue;
                    }
                    seed += 1;
                    let by = Route::by(|tuple, targets| tuple[8] as usize % targets);
                    let flow = match kind {
                        "key" => Flow::shuffle("f").route(Route::Key("key")),
                        "by" => Flow::shuffle("f").route(by),
                        "explicit" => Flow::shuffle("f").route(Route::Explicit),
                        // The route stays when a shuffle becomes a replication.
                        "replicate" => Flow::replicate("f").route(Route::Key("key")),
                        "ordered" => Flow::replicate("f").ordered(),
                        _ => Flow::combine("f"),
                    };
                    let flow = flow.schema(Row::schema()).optimise(goal).detection(detection);
                    let flow = flow.silence(Duration::from_secs(60));
                    let mut ends = connect(devices, flow, (&lists.0, &lists.1)).unwrap();
                    let explicit = kind == "explicit";
                    let plan = Plan { flush: 9, explicit, ..Plan::new(seed, tuples) };
                    let outcome = run(&mut ends, plan, &mut idle);
                    let to_all = matches!(kind, "replicate" | "ordered");
                    check(&outcome, plan, if to_all { targets } else { 1 });
                    if kind == "ordered" {
                        assert_eq!(disorder(&outcome.orders), None, "{goal:?}, {detection:?}");
                    }
                }
            }
        }
    }
}
