//! The benchmark, tiny, so that it cannot rot: its processes are threads.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use millstream::program::cluster::{
    Invitation, Launch, Launched, Launcher, Loopback, Node, ProcessFailure, Program, Setup,
};
use millstream_flow::shuffle::{Counters, Depth, Design, Error};
use millstream_lab::shuffle::{Options, Pattern, Report, ShuffleFailure, ShuffleMember};

/// Members as threads; they leave the job after a while, if there is one.
struct Threads {
    leave_after: Option<Duration>,
}

impl Launcher for Threads {
    fn launch(&self, invitation: &Invitation) -> Result<Option<Box<dyn Launched>>, ProcessFailure> {
        let (invitation, leave_after) = (invitation.clone(), self.leave_after);
        thread::spawn(move || {
            let token = invitation.token;
            let node = Node::join(&Loopback, &invitation).unwrap();
            if let Some(while_it_runs) = leave_after {
                let job = node.abandon();
                thread::spawn(move || {
                    thread::sleep(while_it_runs);
                    job.stop();
                });
            }
            // Process 0 knows how it ended.
            let _ = node.serve(|process, setup: &Setup| {
                let options = setup.task.as_str().unwrap().parse().unwrap();
                ShuffleMember::new(&options, process, &token)
            });
        });
        Ok(None)
    }
}

fn measure_with(
    options: &Options,
    launcher: impl Launcher + 'static,
) -> Result<Report, ShuffleFailure> {
    let (processes, launcher) = (options.processes, Arc::new(launcher));
    let log = Arc::new(|line: &str| panic!("{line}"));
    let launch = Launch { processes, launcher, transport: Arc::new(Loopback), given: None, log };
    millstream_lab::shuffle::measure(options, &launch, |_| ())
}

fn measure(options: &Options) -> Result<Report, ShuffleFailure> {
    measure_with(options, Threads { leave_after: None })
}

#[test]
fn every_design_is_measured_and_its_answer_checked() {
    for (number, design) in Design::VARIANTS.into_iter().enumerate() {
        for pattern in [Pattern::Repartition, Pattern::Broadcast] {
            let options = Options {
                pattern,
                processes: 2 + number % 2,
                threads: 1 + number % 3,
                message_bytes: 1024,
                depth: if number % 2 == 0 { Depth::Fixed(3) } else { "adaptive".parse().unwrap() },
                tuples: 1000,
                compute_us: 1.0,
                straggler_us: (number % 2 == 0).then_some(20.0),
                ..Options::new(design)
            };
            let report = measure(&options).unwrap();
            assert_eq!(report.nodes.len(), options.processes);
            let (sender, receiver) = report.counters();
            let copies = if pattern == Pattern::Broadcast { options.processes } else { 1 };
            let bytes = 1000 * options.processes * copies * 16;
            assert_eq!((sender.bytes, receiver.bytes), (bytes as u64, bytes as u64), "{design}");
            let pairs = options.processes * design.queue_pairs(options.processes, options.threads);
            assert_eq!(sender.queue_pairs, pairs as u64, "{design}");
            let json = report.json();
            let start = format!("{{\"bench\":\"shuffle\",\"design\":\"{design}\"");
            assert!(json.starts_with(&start) && json.ends_with("}}"), "{json}");
            let straggler = if number % 2 == 0 { "20" } else { "null" };
            assert!(json.contains(&format!("\"straggler_us\":{straggler},")), "{json}");
        }
    }
}

/// Asking whether a peer is alive takes longer where the peer takes longer, and is no part of what
/// a message takes.
#[test]
fn a_straggler_takes_no_more_requests_for_a_message() {
    for (design, keep_alive) in [("SEMQ/WR", false), ("SEMQ/RD", false), ("MESQ/SR", true)] {
        let measured = |straggler_us| {
            let tuples = 12_000;
            measure(&Options { tuples, straggler_us, ..Options::new(design.parse().unwrap()) })
                .unwrap()
        };
        let [even, uneven] = [None, Some(200_000.0)].map(measured);
        let asked = |(sender, receiver): (Counters, Counters)| match keep_alive {
            true => sender.keep_alives + receiver.keep_alives,
            false => sender.probes + receiver.probes,
        };
        assert!(asked(uneven.counters()) > asked(even.counters()), "{design}");
        let (one, other) = (even.operations_per_transfer(), uneven.operations_per_transfer());
        // Credit is not given back for what is left when a stream ends.
        assert!((one - other).abs() < 0.2, "{design}: {one} and {other}");
    }
}

#[test]
fn own_tuples_that_are_kept_are_not_sent() {
    let sent = |keep_own| {
        let options =
            Options { keep_own, tuples: 1000, ..Options::new("SEMQ/WR".parse().unwrap()) };
        // Its answer is checked.
        let report = measure(&options).unwrap();
        assert!(report.json().contains(if keep_own {
            "\"own\":\"keep\""
        } else {
            "\"own\":\"send\""
        }));
        report.counters().0.bytes
    };
    assert_eq!(sent(false), 2 * 1000 * 16);
    // About half of the keys are the process's own.
    assert!((14_000..18_000).contains(&sent(true)));
}

/// Each says which option it is about, what is wrong, and what is possible. Over `shm` a queue has
/// 16,384 entries.
#[test]
fn impossible_options_are_refused() {
    let named = |name: &str| Options::new(name.parse().unwrap());
    let depth = |name: &str, depth: &str, message_bytes| Options {
        depth: depth.parse().unwrap(),
        message_bytes,
        ..named(name)
    };
    for (options, setting, why) in [
        (Options { processes: 0, ..named("SEMQ/SR") }, "processes", "needs one"),
        (Options { message_bytes: 17, ..named("SEMQ/SR") }, "message_bytes", "16 bytes"),
        (Options { message_bytes: 0, ..named("SEMQ/SR") }, "message_bytes", "has 1 to "),
        (Options { message_bytes: 1 << 40, ..named("SEMQ/SR") }, "message_bytes", "has 1 to "),
        (Options { message_bytes: 4096, ..named("MESQ/SR") }, "message_bytes", "1 to 4080 bytes"),
        (Options { compute_us: f64::NAN, ..named("SEMQ/SR") }, "compute_us", "not NaN"),
        (Options { straggler_us: Some(-1.0), ..named("SEMQ/SR") }, "straggler_us", "not -1"),
        (Options { credit_every: 3, ..named("SEMQ/SR") }, "credit_every", "has 2 buffers"),
        (depth("SEMQ/SR", "fixed:1", 64), "credit_every", "has 1 buffer waits for ever"),
        (depth("SEMQ/SR", "fixed:0", 64), "depth", "needs a buffer"),
        (depth("SEMQ/SR", "adaptive:4:2", 64), "depth", "later, which is 2"),
        (depth("SEMQ/SR", "fixed:600000", 16), "depth", "of 2 peers each has at most 524288"),
        // 3 entries for each buffer, and 40.
        (depth("SEMQ/WR", "fixed:6000", 16), "depth", "need 18040 entries of a queue"),
        (depth("MESQ/SR", "fixed:9000", 16), "depth", "has at most 16384"),
        (depth("SEMQ/RD", "fixed:5449", 16), "depth", "need 16387 entries"),
        (
            Options { keep_own: true, pattern: Pattern::Broadcast, ..named("SEMQ/SR") },
            "own",
            "each goes to one process",
        ),
        (
            Options { threads: 96, ..depth("SEMQ/WR", "adaptive:2:64", 64) },
            "depth",
            "(64 for each of 96 threads)",
        ),
    ] {
        // Nothing is started.
        let error = measure_with(&options, Nothing).unwrap_err();
        let text = error.to_string();
        let ShuffleFailure::Shuffle(Error::Setting { name, .. }) = error else { panic!("{text}") };
        assert!(name == setting && text.contains(why), "{text}");
    }
    depth("SEMQ/RD", "fixed:5448", 16).check().unwrap();
}

/// Launches nothing.
struct Nothing;

impl Launcher for Nothing {
    fn launch(&self, _: &Invitation) -> Result<Option<Box<dyn Launched>>, ProcessFailure> {
        unreachable!("nothing is started")
    }
}

/// A process that goes while tuples move stops the others and is named.
#[test]
fn a_process_that_leaves_is_named() {
    for design in ["MESQ/SR", "SEMQ/WR", "SEMQ/RD"] {
        let options =
            Options { tuples: 1_000_000_000_000, ..Options::new(design.parse().unwrap()) };
        let leaves = Threads { leave_after: Some(Duration::from_millis(300)) };
        let failure = measure_with(&options, leaves).unwrap_err();
        let text = failure.to_string();
        // Process 0 may notice on the channel or on the control connection.
        assert!(matches!(failure, ShuffleFailure::Process(_)), "{design}: {text}");
        assert!(text.contains("process 1"), "{design}: {text}");
    }
}

#[test]
fn a_killed_process_is_named() {
    let arguments = vec!["-c".into(), "kill -9 $$".into()];
    let killed = Program { path: "/bin/sh".into(), arguments };
    let options = Options::new("SEMQ/SR".parse().unwrap());
    let text = measure_with(&options, killed).unwrap_err().to_string();
    assert_eq!(text, "process 1 was killed by signal 9 (SIGKILL)");
}
