//! The `millstream-lab` program: measures Millstream (docs/measuring.md).
//!
//! Exit codes are those of `millstream`: 0 done, 1 the run failed or its answer is wrong, 2 wrong
//! usage.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use millstream_lab::Failure;
use millstream_lab::bench::Bench;
use millstream_lab::ingest::{PRODUCE, produce};
use millstream_lab::processes::{NODE, node};

#[derive(Parser)]
#[command(name = "millstream-lab", version, about = "Measures Millstream, and checks the answers")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a benchmark workload on data generated in memory, and check the answer
    Bench(Box<Bench>),
    /// A further process of a job: started by `bench`, which tells it what to do
    #[command(hide = true, name = NODE)]
    Node,
    /// Send records to the job of `bench ingest`
    #[command(hide = true, name = PRODUCE)]
    Produce { task: String },
}

fn main() -> ExitCode {
    millstream_allocator::keep_large_apart();
    millstream::program::on_refused_memory(millstream_allocator::refused);
    let command = Arguments::parse().command;
    let level = millstream_cpu::check().map_err(Failure::Usage);
    let done = level.and_then(|_| match command {
        Command::Bench(bench) => bench.run(),
        Command::Node => node(),
        Command::Produce { task } => produce(&task),
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => ExitCode::from(failure.tell()),
    }
}
