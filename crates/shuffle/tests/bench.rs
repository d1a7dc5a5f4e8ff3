//! The benchmark, tiny, so that it cannot rot: its processes are this binary.

use std::process::Command;

use millstream_shuffle::bench::{Failure, Options, Pattern, child, run};
use millstream_shuffle::{Depth, Design};

const CHILD: &str = "MILLSTREAM_TEST_CHILD";

/// What this test's binary does as a process of the benchmark.
#[test]
fn as_child() {
    let Ok(line) = std::env::var(CHILD) else { return };
    let (options, process) = line.split_once(' ').unwrap();
    let (mut input, mut output) = (std::io::stdin(), std::io::stdout());
    child(&options.parse().unwrap(), process.parse().unwrap(), &mut input, &mut output).unwrap();
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
            let report = run(&options, command).unwrap();
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

#[test]
fn own_tuples_that_are_kept_are_not_sent() {
    let sent = |keep_own| {
        let options =
            Options { keep_own, tuples: 1000, ..Options::new("SEMQ/WR".parse().unwrap()) };
        // Its answer is checked.
        let report = run(&options, command).unwrap();
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

#[test]
fn impossible_options_are_refused() {
    let design = "SEMQ/SR".parse().unwrap();
    for options in [
        Options { processes: 0, ..Options::new(design) },
        Options { message_bytes: 17, ..Options::new(design) },
        Options { compute_us: f64::NAN, ..Options::new(design) },
        Options { straggler_us: Some(-1.0), ..Options::new(design) },
        Options { credit_every: 3, ..Options::new(design) },
        Options { message_bytes: 1 << 40, ..Options::new(design) },
        Options { keep_own: true, pattern: Pattern::Broadcast, ..Options::new(design) },
    ] {
        // Nothing is started.
        let error = run(&options, |_, _| unreachable!()).unwrap_err();
        assert!(matches!(error, Failure::Options(_) | Failure::Shuffle(_)), "{error}");
    }
}
