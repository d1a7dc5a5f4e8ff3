//! Seeded histories of the stores are linearizable; planted faults are found. `MILLSTREAM_SEEDS`
//! sets the number of histories of each test.

use std::time::Duration;

use millstream_fabric::sim::Model;

use crate::store::{
    Bug, Chance, Load, PLANTED, Pace, Plan, Prices, Report, Way, contradiction, run,
};

fn seeds(usual: u64) -> u64 {
    let text = std::env::var("MILLSTREAM_SEEDS").ok();
    text.map_or(usual, |text| text.parse().expect("MILLSTREAM_SEEDS is a number"))
}

/// A run drawn from a seed: loss, repetition and delay up to 5 %, and one dead follower in half of
/// the runs.
fn draw(seed: u64, way: Way) -> Plan {
    let mut chance = Chance(seed);
    let mut up_to_5 = || chance.below(501) as f64 / 10_000.0;
    let (datagram_loss, datagram_repeat, datagram_delay) = (up_to_5(), up_to_5(), up_to_5());
    let latency = Duration::from_nanos(200 + chance.below(10_000) as u64);
    let model =
        Model { latency, datagram_loss, datagram_repeat, datagram_delay, ..Model::default() };
    let followers = [2, 4][chance.below(2)];
    let again = Duration::from_micros(200 + chance.below(4000) as u64);
    let load = Load {
        requests: 12,
        outstanding: 1 + chance.below(4),
        keys: 3,
        writes: 50,
        again: (way == Way::NoPaxos).then_some(again),
    };
    let dies = chance.below(2) == 0;
    let stop = dies.then(|| (1 + chance.below(followers), chance.below(2000) as u64));
    Plan {
        seed,
        followers,
        clients: 3,
        load,
        model,
        segments: [2, 8, 64][chance.below(3)],
        stop,
        silence: Duration::from_millis(20),
        steps_max: 400_000,
        pace: Pace::Events,
        client_nodes: 0,
    }
}

fn check(report: &Report, plan: &Plan) {
    assert!(report.finished, "{plan:?}: requests without an answer, {report:?}");
    let fault = contradiction(&report.history);
    assert_eq!(fault, None, "{plan:?}: a key that no order explains, {report:?}");
    assert!(report.logs_agree, "{plan:?}: logs differ");
}

#[test]
fn multi_paxos_is_linearizable() {
    for seed in 0..seeds(150) {
        let plan = draw(seed, Way::Paxos);
        check(&run(Way::Paxos, &plan).unwrap(), &plan);
    }
}

#[test]
fn nopaxos_is_linearizable_and_agrees_on_gaps() {
    let (mut fills, mut no_ops, mut sent_again) = (0, 0, 0);
    for seed in 0..seeds(150) {
        let plan = draw(seed, Way::NoPaxos);
        let report = run(Way::NoPaxos, &plan).unwrap();
        check(&report, &plan);
        fills += report.fills;
        no_ops += report.no_ops;
        sent_again += report.sent_again;
    }
    assert!(fills > 0 && no_ops > 0 && sent_again > 0, "{fills}, {no_ops}, {sent_again}");
}

/// Clients send many more requests than the leader remembers answers, and some of them again.
#[test]
fn nopaxos_forgets_answers_and_executes_nothing_twice() {
    let mut sent_again = 0;
    for seed in 0..seeds(10) {
        let mut plan = draw(seed, Way::NoPaxos);
        plan.load = Load { requests: 400, outstanding: 16, keys: 100, ..plan.load };
        plan.steps_max = 4_000_000;
        let report = run(Way::NoPaxos, &plan).unwrap();
        check(&report, &plan);
        sent_again += report.sent_again;
    }
    assert!(sent_again > 0);
}

#[test]
fn the_stand_in_after_dare_is_linearizable() {
    for seed in 0..seeds(50) {
        let plan = draw(seed, Way::Dare);
        check(&run(Way::Dare, &plan).unwrap(), &plan);
    }
}

/// A dead follower blocks nobody: with few segments the others' credit would be held for ever.
#[test]
fn stores_go_on_without_a_dead_follower() {
    for way in [Way::Paxos, Way::NoPaxos, Way::Dare] {
        let plan = draw(3, way);
        let load = Load { requests: 40, keys: 20, ..plan.load };
        let plan = Plan { stop: Some((1, 100)), segments: 2, load, ..plan };
        check(&run(way, &plan).unwrap(), &plan);
    }
}

/// Without load, both stores take four message delays: NOPaxos two for the number, and two for
/// request and answer (thesis, section 7.6.3.2).
#[test]
fn an_answer_takes_four_message_delays() {
    let latency = Duration::from_millis(10);
    for way in [Way::Paxos, Way::NoPaxos] {
        let mut plan = draw(1, way);
        plan.model = Model { latency, ..Model::default() };
        (plan.stop, plan.silence) = (None, Duration::from_secs(1));
        (plan.clients, plan.segments) = (1, 8);
        plan.pace = Pace::Even(Duration::from_micros(10));
        plan.load = Load { requests: 1, again: None, ..plan.load };
        let report = run(way, &plan).unwrap();
        check(&report, &plan);
        let delays = report.waited.as_secs_f64() / latency.as_secs_f64();
        assert!((4.0..4.5).contains(&delays), "{way:?}: {delays} message delays");
    }
}

/// Whether some history with this fault is impossible.
fn is_caught(bug: Bug, way: Way) -> bool {
    PLANTED.set(Some(bug));
    let caught = (0..300).any(|seed| {
        let mut plan = draw(seed, way);
        plan.stop = None;
        plan.model.datagram_loss = 0.05;
        // Few operations at the same time leave few orders that could explain a wrong answer.
        plan.load = Load { keys: 1, outstanding: 1, writes: 30, requests: 20, ..plan.load };
        let report = run(way, &plan).unwrap();
        contradiction(&report.history).is_some()
    });
    PLANTED.set(None);
    caught
}

#[test]
fn answers_before_the_votes_are_caught() {
    assert!(is_caught(Bug::AnswersBeforeVotes, Way::Paxos));
}

#[test]
fn answers_without_the_leader_are_caught() {
    assert!(is_caught(Bug::AnswersWithoutLeader, Way::NoPaxos));
}

#[test]
fn requests_that_are_executed_twice_are_caught() {
    assert!(is_caught(Bug::ExecutesTwice, Way::NoPaxos));
}

/// With clocks a node's work takes time, and messages leave when it is over.
#[test]
fn clocks_make_a_leader_the_bottleneck() {
    let rate = |push_ns| {
        let mut plan = draw(1, Way::Paxos);
        (plan.stop, plan.model, plan.segments) = (None, Model::default(), 64);
        (plan.silence, plan.client_nodes) = (Duration::from_secs(1), 1);
        plan.pace = Pace::Clocks(Prices { push_ns, take_ns: 100.0, look_ns: 50.0 });
        plan.load = Load { requests: 100, keys: 100, outstanding: 8, ..plan.load };
        let report = run(Way::Paxos, &plan).unwrap();
        check(&report, &plan);
        report.history.len() as f64 / report.ended.as_secs_f64()
    };
    let (cheap, dear) = (rate(100.0), rate(1000.0));
    // The leader posts two messages for a request.
    assert!(dear < 1.0 / 2e-6 && cheap > 2.0 * dear, "{cheap} and {dear} requests a second");
}
