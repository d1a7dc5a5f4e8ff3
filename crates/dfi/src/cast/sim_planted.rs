//! Proof that the seeded tests notice faults: each fault is planted, and has to be found. And
//! datagrams of strangers.

#[path = "../../tests/common/mod.rs"]
mod common;

use common::casting::{Order, draw, run_drawn};
use common::order::disorder;
use common::{Chance, Row, check, connect, simulated, threads};
use millstream_fabric::sim::Model;
use millstream_fabric::{CompletionQueue, Datagram, Fabric, Outgoing, QueueSizes, Source as Bytes};

use crate::cast::{Fault, PLANTED, group_of};
use crate::{Error, Flow, Latency, Source, Target};

/// Whether one of some seeded runs with this fault breaks a promise of the flow.
fn is_caught(fault: Fault, order: Order) -> bool {
    std::panic::catch_unwind(|| {
        PLANTED.set(fault);
        for seed in 0..40 {
            let mut drawn = draw(seed, order, 60);
            drawn.plan.steps_max = 60_000;
            let (outcome, ..) = run_drawn(&drawn);
            check(&outcome, drawn.plan, drawn.targets);
            assert!(order == Order::OfPairs || disorder(&outcome.orders).is_none(), "disorder");
        }
    })
    .is_err()
}

#[test]
fn without_a_fault_all_runs_are_right() {
    for order in [Order::OfPairs, Order::OfFlow] {
        assert!(!is_caught(Fault::None, order), "{order:?}");
    }
}

#[test]
fn credit_that_skips_the_slowest_target_is_caught() {
    assert!(is_caught(Fault::SkipTheSlowest, Order::OfPairs));
}

#[test]
fn a_number_drawn_after_sending_is_caught() {
    assert!(is_caught(Fault::NumberAfterSending, Order::OfFlow));
}

#[test]
fn duplicates_that_are_kept_are_caught() {
    assert!(is_caught(Fault::KeepDuplicates, Order::OfPairs));
}

#[test]
fn an_end_that_is_sent_once_is_caught() {
    assert!(is_caught(Fault::EndOnce, Order::OfPairs));
}

/// A process of the job sends random datagrams to the group: they are dropped. With the tag of a
/// source, impossible ones are errors, and none is a panic.
#[test]
fn strangers_in_the_group_do_no_harm() {
    let (mut errors, mut wholes) = (0, 0);
    for seed in 0..200 {
        let mut chance = Chance(seed);
        let (sim, devices) = simulated(seed, Model::default(), 3);
        let lists = (threads(1, 1, 0), threads(2, 2, 0)[1..].to_vec());
        let flow = Flow::replicate("f").schema(Row::schema()).multicast().ordered();
        let goal = Latency { segments: 4 };
        let mut ends = connect(&devices, flow.optimise(goal), (&lists.0, &lists.1)).unwrap();
        let tag = match &ends.targets[0] {
            Target(crate::target::Receiver::Cast(target)) => target.streams[0].tag,
            Target(_) => panic!("no multicast"),
        };
        let stranger = &devices[2];
        let mut queue = stranger.completion_queue(64, None).unwrap();
        let sizes = QueueSizes { send: 16, receive: 1 };
        let mut pair = stranger.datagram(&queue, &queue, sizes).unwrap();
        let to = pair.resolve_group(group_of(ends.targets[0].declaration())).unwrap();
        let source: &mut Source<_> = &mut ends.sources[0];
        let (mut pushed, mut arrived, mut error) = (0, 0, None);
        while arrived < 50 && error.is_none() {
            let mut bytes: [u8; 56] = std::array::from_fn(|_| chance.below(256) as u8);
            // A small number, from source 0, perhaps with the tag.
            bytes[..4].copy_from_slice(&[
                0,
                [0, 0x40, 0x80][chance.below(3)],
                [0, 32][chance.below(2)],
                0,
            ]);
            bytes[9..16].fill(0);
            bytes[17..24].fill(0);
            if seed % 2 == 0 {
                bytes[4..8].copy_from_slice(&tag.to_le_bytes());
            }
            let length = [24, 56, chance.below(57)][chance.below(3)];
            let datagram = Outgoing {
                id: 0,
                to: &to,
                source: Bytes::Inline(&bytes[..length]),
                immediate: None,
                signalled: true,
            };
            pair.post(&[datagram]).unwrap();
            while queue.poll(&mut [Default::default()]).unwrap() > 0 {}
            error =
                source.try_push(&Row::new(0, pushed)).map(|went| pushed += u64::from(went)).err();
            sim.advance(std::time::Duration::from_micros(20));
            error = error.or(source.progress().err());
            match ends.targets[0].try_consume() {
                Ok(crate::Consumed::Batch(_)) => arrived += 1,
                Ok(_) => {}
                Err(one) => error = Some(one),
            }
        }
        match error {
            Some(Error::Protocol { .. } | Error::PeerLost { .. }) if seed % 2 == 0 => errors += 1,
            Some(error) => panic!("seed {seed}: {error}"),
            None => wholes += 1,
        }
    }
    assert!(errors > 50 && wholes >= 100, "{errors} errors, {wholes} whole runs");
}
