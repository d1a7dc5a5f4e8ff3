//! Measures the hand-written baseline: `handwritten WORKLOAD [--records N] [--threads T]
//! [--generate-only]` prints one line of JSON.
//!
//! The result of each thread is checked against the published answer where there is one, and
//! against the oracle's otherwise. Several threads merge nothing, so the sums printed are not the
//! workload's answer; see [`handwritten::run_parallel`].

use std::process::ExitCode;
use std::time::Instant;

use millstream_workloads::{Spec, Verifier, Workload, handwritten};

const USAGE: &str = "usage: handwritten WORKLOAD [--records N] [--threads T] [--batch-rows N] \
                     [--repeat N] [--generate-only]";

struct Arguments {
    spec: Spec,
    threads: usize,
    batch_rows: usize,
    repeat: usize,
    generate_only: bool,
}

fn arguments() -> Result<Arguments, String> {
    let mut words = std::env::args().skip(1);
    let name = words.next().ok_or(USAGE)?;
    let workload = Workload::from_name(&name).ok_or_else(|| {
        format!("there is no workload '{name}': use one of {}", Workload::names().join(", "))
    })?;
    let mut all = Arguments {
        spec: Spec::new(workload),
        threads: 1,
        batch_rows: 16 * 1024,
        repeat: 1,
        generate_only: false,
    };
    while let Some(word) = words.next() {
        if word == "--generate-only" {
            all.generate_only = true;
            continue;
        }
        let value = words.next().and_then(|value| value.parse::<usize>().ok());
        let value = value.ok_or_else(|| format!("'{word}' needs a number\n{USAGE}"))?;
        match word.as_str() {
            "--records" => all.spec.records = value as u64,
            "--threads" => all.threads = value.clamp(1, 256),
            "--batch-rows" => all.batch_rows = value,
            "--repeat" => all.repeat = value.max(1),
            _ => return Err(USAGE.to_string()),
        }
    }
    Ok(all)
}

fn main() -> ExitCode {
    match arguments().and_then(|a| measure(&a).map_err(|error| error.to_string())) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::from(2)
        }
    }
}

fn measure(arguments: &Arguments) -> millstream_workloads::Result<bool> {
    let Arguments { spec, threads, batch_rows, repeat, generate_only } = arguments;
    let started = Instant::now();
    let splits = handwritten::splits(spec, *threads, *batch_rows);
    eprintln!("generated in {:.2} s", started.elapsed().as_secs_f64());
    if *generate_only {
        return Ok(true);
    }
    let mut all_ok = true;
    for _ in 0..*repeat {
        let started = Instant::now();
        let loops = match &splits[..] {
            [only] => vec![handwritten::run(spec, only)?],
            _ => handwritten::run_parallel(spec, &splits)?,
        };
        let seconds = started.elapsed().as_secs_f64();
        let answer = Verifier::sum(spec, &loops).answer();
        // One thread's published answer costs nothing, so that callgrind counts the loop alone.
        let ok = handwritten::is_right(spec, &loops);
        println!(
            "{{\"engine\": \"handwritten\", \"workload\": \"{}\", \"workers\": {threads}, \
             \"records\": {}, \"seconds\": {seconds:.4}, \"mrec_per_s\": {:.1}, \
             \"result_rows\": {}, \"checksum\": {}, \"mix\": {}, \"ok\": {ok}}}",
            spec.workload.name(),
            spec.records,
            spec.records as f64 / seconds / 1e6,
            answer.result_rows,
            answer.checksum,
            answer.mix,
        );
        all_ok &= ok;
    }
    Ok(all_ok)
}
