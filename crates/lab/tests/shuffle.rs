//! The benchmark, tiny, so that it cannot rot: its processes are this binary.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use millstream_flow::shuffle::{Counters, Depth, Design, Error};
use millstream_lab::shuffle::{Options, Pattern, ShuffleFailure, child, measure};

const CHILD: &str = "MILLSTREAM_TEST_CHILD";

/// What this test's binary does as a process of the benchmark.
#[test]
fn as_child() {
    let Ok(line) = std::env::var(CHILD) else { return };
    let (options, process) = line.split_once(' ').unwrap();
    let (input, output) = (Box::new(std::io::stdin()), Box::new(std::io::stdout()));
    match child(&options.parse().unwrap(), process.parse().unwrap(), input, output) {
        Ok(()) | Err(ShuffleFailure::Orphan) => {}
        Err(other) => panic!("{other}"),
    }
}

fn command(options: &Options, process: usize) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["as_child", "--exact", "--nocapture"]).env(CHILD, format!("{options} {process}"));
    command
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
            let report = measure(&options, command).unwrap();
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
            measure(
                &Options { tuples, straggler_us, ..Options::new(design.parse().unwrap()) },
                command,
            )
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
        let report = measure(&options, command).unwrap();
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
        let error = measure(&options, |_, _| unreachable!()).unwrap_err();
        let text = error.to_string();
        let ShuffleFailure::Shuffle(Error::Setting { name, .. }) = error else { panic!("{text}") };
        assert!(name == setting && text.contains(why), "{text}");
    }
    depth("SEMQ/RD", "fixed:5448", 16).check().unwrap();
}

/// More tuples than can be sent in the test's time.
fn endless() -> Options {
    Options { tuples: 1_000_000_000_000, ..Options::new("MESQ/SR".parse().unwrap()) }
}

/// The same by way of a shell, which does something before it becomes the process.
fn after(script: &str, options: &Options, process: usize) -> Command {
    let own = command(options, process);
    let mut shell = Command::new("/bin/sh");
    shell.envs(own.get_envs().filter_map(|(name, value)| Some((name, value?))));
    shell.args(["-c", &format!("{script}; exec \"$@\""), "sh"]);
    shell.arg(own.get_program()).args(own.get_args());
    shell
}

/// The failure of a run, one of whose processes, while it does something before it becomes one, or
/// later, gets a signal.
fn signalled(options: &Options, victim: usize, signal: &str, late: Duration) -> ShuffleFailure {
    static RUNS: AtomicUsize = AtomicUsize::new(0);
    let number = RUNS.fetch_add(1, Ordering::Relaxed);
    let file = format!("shuffle-{}-{number}", std::process::id());
    let file = std::env::temp_dir().join(file);
    // An early one gets the signal before it has said anything.
    let rest = if late.is_zero() { "sleep 0.5" } else { "true" };
    let says = format!("echo $$ > {}; {rest}", file.display());
    let start = |options: &Options, process: usize| {
        after(if process == victim { &says } else { "true" }, options, process)
    };
    let failure = std::thread::scope(|scope| {
        let run = scope.spawn(|| measure(options, start).unwrap_err());
        let number = loop {
            match std::fs::read_to_string(&file) {
                Ok(number) if number.ends_with('\n') => break number,
                _ => std::thread::sleep(MOMENT),
            }
        };
        std::thread::sleep(late);
        assert!(Command::new("kill").args([signal, number.trim()]).status().unwrap().success());
        run.join().unwrap()
    });
    std::fs::remove_file(&file).unwrap();
    failure
}

/// A process that is killed is the one that is named, whichever it is, and how it ended.
#[test]
fn a_killed_process_is_named() {
    for victim in [0, 1] {
        let failure = signalled(&endless(), victim, "-9", Duration::ZERO);
        let text = failure.to_string();
        assert!(
            matches!(failure, ShuffleFailure::Ended { process, .. } if process == victim),
            "{text}"
        );
        assert!(text.contains("was killed (signal: 9 (SIGKILL))"), "{text}");
    }
}

/// So is one that is stopped: before it has said anything, while tuples move, and when it has only
/// to report. Not even `RD`, which goes on with the memory of a process that stands still, waits
/// for ever.
#[test]
fn a_stopped_process_is_named() {
    let started = |design: &str, tuples, straggler_us| Options {
        processes: 3,
        tuples,
        straggler_us,
        ..Options::new(design.parse().unwrap())
    };
    let second = Duration::from_secs(1);
    std::thread::scope(|scope| {
        for (options, victim, late) in [
            (started("SEMQ/WR", 1000, None), 2, Duration::ZERO),
            (started("SEMQ/SR", 1_000_000_000_000, None), 0, second),
            (started("SEMQ/RD", 1_000_000_000_000, None), 1, second),
            // Process 0 computes for long after it and the others have sent everything.
            (started("SEMQ/RD", 4096, Some(1e6)), 0, second),
        ] {
            scope.spawn(move || {
                let begin = Instant::now();
                let failure = signalled(&options, victim, "-STOP", late);
                let text = failure.to_string();
                let named =
                    matches!(failure, ShuffleFailure::Stopped { process } if process == victim);
                assert!(named, "{}, {late:?}: {text}", options.design);
                // Twenty seconds of silence; the rest is for slow machines.
                assert!(begin.elapsed() < Duration::from_secs(50), "{}", options.design);
            });
        }
    });
}

const PARENT: &str = "MILLSTREAM_TEST_PARENT";
const MOMENT: Duration = Duration::from_millis(5);

/// What this test's binary does as a process that starts others, which say who they are.
#[test]
fn as_parent() {
    if std::env::var(PARENT).is_ok() {
        let start = |options: &Options, process| after("echo @ $$ >&2", options, process);
        drop(measure(&endless(), start));
    }
}

/// Processes whose parent is killed end by themselves.
#[test]
fn processes_end_with_the_one_that_started_them() {
    let mut parent = Command::new(std::env::current_exe().unwrap())
        .args(["as_parent", "--exact", "--nocapture"])
        .env(PARENT, "1")
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(parent.stderr.take().unwrap()).lines().map_while(Result::ok);
    let number = |line: String| line.strip_prefix("@ ")?.parse::<u32>().ok();
    let children: Vec<u32> = lines.by_ref().filter_map(number).take(2).collect();
    assert_eq!(children.len(), 2);
    parent.kill().unwrap();
    parent.wait().unwrap();
    let begin = Instant::now();
    // One that has ended may be left for a while, until somebody asks how.
    let runs = |child: &u32| {
        let state = std::fs::read_to_string(format!("/proc/{child}/stat"));
        state.is_ok_and(|state| !state.contains(") Z "))
    };
    while children.iter().any(runs) {
        assert!(begin.elapsed() < Duration::from_secs(20), "they run on");
        std::thread::sleep(MOMENT);
    }
}
