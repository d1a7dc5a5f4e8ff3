//! Measures a shuffle between processes over shared memory, and prints a line of JSON:
//!
//!     cargo run --release -p millstream-shuffle --example shuffle -- --design SEMQ/WR \
//!         [--pattern repartition|broadcast] [--processes N] [--threads N] [--message-bytes N] \
//!         [--buffers fixed:K|bdp:BYTES_PER_S:LATENCY_NS|adaptive[:LEAST:MOST]] \
//!         [--credit-every F] [--compute-us X] [--tuples N]

use std::error::Error;
use std::process::Command;

use millstream_shuffle::bench::{Options, child, run};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [word, line, process] = &arguments[..]
        && word == "--child"
    {
        let (input, output) = (std::io::stdin(), std::io::stdout());
        return Ok(child(&line.parse()?, process.parse()?, input, output)?);
    }
    let value = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1)
    };
    let design = value("--design").ok_or("which design? (--design SEMQ/WR)")?;
    let mut options = Options::new(design.parse()?);
    for pair in arguments.chunks(2) {
        let [name, value] = pair else { return Err(format!("{} has no value", pair[0]).into()) };
        match name.as_str() {
            "--design" => {}
            "--pattern" => options.pattern = value.parse()?,
            "--processes" => options.processes = value.parse()?,
            "--threads" => options.threads = value.parse()?,
            "--message-bytes" => options.message_bytes = value.parse()?,
            "--buffers" => options.depth = value.parse()?,
            "--credit-every" => options.credit_every = value.parse()?,
            "--compute-us" => options.compute_us = value.parse()?,
            "--tuples" => options.tuples = value.parse()?,
            other => return Err(format!("there is no option {other}").into()),
        }
    }
    let program = std::env::current_exe()?;
    let report = run(&options, |options, process| {
        let mut command = Command::new(&program);
        command.args(["--child", &options.to_string(), &process.to_string()]);
        command
    })?;
    println!("{}", report.json());
    Ok(())
}
