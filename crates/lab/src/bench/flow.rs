//! `millstream-lab bench flow`: turns its arguments into a figure of flows and its options.

use clap::ValueEnum as _;

use super::shuffle::ShuffleArguments;
use crate::Failure;
use crate::failure::usage;
use crate::flow::{self, Figure, FlowOptions};

/// Options of `bench flow` alone.
#[derive(clap::Args)]
pub(crate) struct FlowArguments {
    /// `flow`: the figure
    #[arg(value_name = "FIGURE", value_enum)]
    figure: Option<Figure>,
    /// `flow`: few points with little data, to try the figure out
    #[arg(long)]
    short: bool,
    /// `flow`: bytes of a tuple
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    tuple_bytes: Option<usize>,
    /// `flow`: how often a run between processes is repeated; the median counts
    #[arg(long, value_name = "N", allow_negative_numbers = true,
          value_parser = clap::value_parser!(u64).range(1..=1000))]
    turns: Option<u64>,
}

impl FlowArguments {
    /// The first of these options that was given.
    pub(crate) fn given(&self) -> Option<&'static str> {
        let given = [
            (self.figure.is_some(), "a figure"),
            (self.short, "--short"),
            (self.tuple_bytes.is_some(), "--tuple-bytes"),
            (self.turns.is_some(), "--turns"),
        ];
        given.iter().find(|(given, _)| *given).map(|(_, option)| *option)
    }

    /// Measures a figure, with options that it shares with `bench shuffle`.
    pub(crate) fn run(
        &self,
        processes: Option<usize>,
        shared: &ShuffleArguments,
        as_json: bool,
    ) -> Result<(), Failure> {
        let Some(figure) = self.figure else {
            let names = Figure::value_variants().iter().filter_map(|one| one.to_possible_value());
            let names: Vec<_> = names.map(|one| one.get_name().to_string()).collect();
            return Err(usage(&format!(
                "the workload 'flow' needs a figure\n  help: use one of {}",
                names.join(", ")
            )));
        };
        let options = FlowOptions {
            short: self.short,
            processes,
            threads: shared.threads.map(|threads| threads as usize),
            tuple_bytes: self.tuple_bytes,
            tuples: shared.tuples,
            turns: self.turns.map(|turns| turns as usize),
        };
        flow::run(figure, &options, as_json)
    }
}
