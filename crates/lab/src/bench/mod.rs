//! `millstream-lab bench`: turns its arguments into measurements.

mod flow;
mod ingest;
mod options;
mod shuffle;

use std::path::PathBuf;

use clap::ValueEnum;
use millstream::program::cluster::{check_settings, shared_settings};
use millstream::{Exchange, Settings};
use millstream_arguments::{ProcessArguments, SettingArguments};
use millstream_flow::channel::Notification;
use millstream_workloads::{Spec, Window, Workload, ZIPF_KEYS_MAX, Zipf};

use self::ingest::IngestArguments;
use crate::Failure;
use crate::channel::Channel;
use crate::failure::{note, usage};
use crate::files::{self, Files};
use crate::latency::{self, Paced};
use crate::nexmark::{self, Nexmark};
use crate::processes::Processes;
use crate::workload::{Measurement, Runner};
use flow::FlowArguments;
use shuffle::ShuffleArguments;

/// A measurement, as it is asked for on the command line.
#[derive(clap::Args)]
pub struct Bench {
    /// ysb, ysb_small, ysb_str, nb7, cm, ro, nb8, nb8_rows, nb8_count, nb11; or `nexmark-q0` and
    /// the like, a query of NEXMark; or `files`, a file that is read; or `ingest`, records from
    /// other processes; or `latency`, a paced stream; or `channel`, between two threads; or
    /// `shuffle`, the shuffle operator between two processes, or as many as --processes says; or
    /// `flow`, a figure of flows
    #[arg(value_name = "WORKLOAD")]
    pub(crate) workload: String,
    /// Records to generate [default: the workload's]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) records: Option<u64>,
    /// Engine that runs the query: this engine, or a single-purpose loop as the ceiling
    #[arg(long, value_enum, default_value = "millstream")]
    pub(crate) engine: Engine,
    /// Generate the data and stop, to subtract its cost
    #[arg(long)]
    pub(crate) generate_only: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Keys to draw from instead of the workload's number (another modulus). With few, joins give
    /// very many pairs: as many as the square of the records of a key
    #[arg(long, value_name = "N", allow_negative_numbers = true,
          value_parser = clap::value_parser!(u64).range(1..=u32::MAX as u64))]
    pub(crate) keys: Option<u64>,
    /// Draw keys from a Zipf distribution with this exponent, 0 (uniform) to 3, instead of the
    /// workload's own
    #[arg(long, value_name = "Z", allow_negative_numbers = true)]
    pub(crate) zipf: Option<Zipf>,
    /// Other windows than the workload's: tumble:SIZE, hop:SIZE:SLIDE, cumulate:SIZE:STEP or
    /// session:GAP, with lengths such as 500ms, 10s, 1m or 1h
    #[arg(long, value_name = "WINDOW")]
    pub(crate) window: Option<Window>,
    /// `latency`: events per second [default: 100000]
    #[arg(long, value_name = "N", allow_negative_numbers = true,
          value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub(crate) rate: Option<u64>,
    /// `latency`: seconds to run [default: 10]
    #[arg(long, value_name = "N", allow_negative_numbers = true,
          value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(crate) seconds: Option<u64>,
    #[command(flatten)]
    pub(crate) files: FileArguments,
    #[command(flatten)]
    pub(crate) ingest: IngestArguments,
    #[command(flatten)]
    pub(crate) channel: ChannelArguments,
    #[command(flatten)]
    pub(crate) shuffle: ShuffleArguments,
    #[command(flatten)]
    pub(crate) flow: FlowArguments,
    /// How workers bring together what belongs to a key [default: late-merge]
    #[arg(long, value_enum)]
    pub(crate) exchange: Option<ExchangeName>,
    #[command(flatten)]
    pub(crate) processes: ProcessArguments,
    #[command(flatten)]
    pub(crate) settings: SettingArguments,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
pub(crate) enum ExchangeName {
    /// Records stay where they are read; partial state is merged later
    LateMerge,
    /// Half of the workers read and partition records, the others aggregate them
    Repartition,
    /// Every worker reads, partitions and aggregates
    Interleaved,
}

impl ExchangeName {
    fn name(self) -> &'static str {
        match self {
            ExchangeName::LateMerge => "late-merge",
            ExchangeName::Repartition => "repartition",
            ExchangeName::Interleaved => "interleaved",
        }
    }
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
pub(crate) enum Engine {
    Millstream,
    Handwritten,
}

/// Options of `bench files` alone.
#[derive(clap::Args)]
pub(crate) struct FileArguments {
    /// `files`: the format of the file: csv, ndjson, parquet or arrow [default: csv]
    #[arg(long, value_name = "FORMAT")]
    pub(crate) format: Option<String>,
    /// `files`: the file, which is made if it is not there, and stays [default: a temporary one]
    #[arg(long, value_name = "PATH")]
    pub(crate) file: Option<PathBuf>,
}

/// Options of `bench channel` alone.
#[derive(clap::Args)]
pub(crate) struct ChannelArguments {
    /// `channel`: bytes of a slot [default: 4 KiB to 1 MiB, in turn]
    #[arg(long, value_name = "N")]
    pub(crate) slot_bytes: Option<usize>,
    /// `channel`: slots of the ring [default: 4, 8, 16 and 64, in turn]
    #[arg(long, value_name = "C")]
    pub(crate) credits: Option<usize>,
    /// `channel` and `ingest`: runs of what is measured and of the limit, by turns [default: 5]
    #[arg(long, value_name = "N")]
    pub(crate) pairs: Option<usize>,
    /// `channel`: MiB that a run moves [default: 512; over verbs 32]
    #[arg(long, value_name = "N")]
    pub(crate) mib: Option<usize>,
    /// `channel`: how the consumer learns of slots [default: footer; over verbs immediate]
    #[arg(long, value_enum)]
    pub(crate) notification: Option<How>,
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum How {
    /// Polls the slot's last word
    Footer,
    /// Polls completions
    Immediate,
}

/// Measurements besides the workloads.
const OTHERS: [&str; 7] =
    ["nexmark-q0", "files", "ingest", "latency", "channel", "shuffle", "flow"];

impl Bench {
    /// Measures, and prints what came out.
    ///
    /// # Errors
    /// If options do not go together, if the run fails, or if its answer is wrong.
    pub fn run(&self) -> Result<(), Failure> {
        if self.workload == "channel" {
            return self.channel();
        }
        if self.workload == "shuffle" {
            self.refuse_what_is_no_shuffle()?;
            return self.shuffle.run(self.processes.given(), self.json);
        }
        if self.workload == "flow" {
            self.refuse_what_is_no_flow()?;
            return self.flow.run(self.processes.given(), &self.shuffle, self.json);
        }
        let mut pairs = shared_settings(self.processes.count(), self.processes.count());
        pairs.extend(self.settings.pairs().map_err(|e| usage(&e))?);
        pairs.extend(self.exchange.map(|e| ("exchange".to_string(), e.name().to_string())));
        let mut settings = Settings::default();
        for (key, value) in &pairs {
            settings.set(key, value).map_err(|e| usage(&e))?;
        }
        self.refuse_what_does_not_apply(settings.exchange)?;
        self.check_roles(&settings)?;
        check_settings(self.processes.count(), &settings).map_err(|e| usage(&e))?;
        self.processes.fabric_note().into_iter().for_each(|line| note(&line));
        match self.workload.as_str() {
            "latency" => self.latency(settings),
            "files" => self.files(settings),
            "ingest" => {
                let spec = self.spec_of(Workload::Ro)?;
                crate::ingest::run(&self.ingest.plan(
                    (spec, settings),
                    self.channel.pairs,
                    self.json,
                )?)
            }
            _ if self.nexmark_query().is_some() => self.nexmark(settings),
            _ => self.measure(settings, &pairs),
        }
    }

    /// Channels by themselves.
    fn channel(&self) -> Result<(), Failure> {
        self.refuse_what_does_not_apply(Exchange::LateMerge)?;
        self.check_channel()?;
        let ChannelArguments { slot_bytes, credits, pairs, mib, notification } = self.channel;
        let notification = notification.map(|how| match how {
            How::Footer => Notification::Footer,
            How::Immediate => Notification::Immediate,
        });
        let fabric = self.processes.fabric();
        let channel = Channel { fabric, slot_bytes, credits, pairs, mib, notification };
        channel.run(self.json)
    }

    /// A paced stream.
    fn latency(&self, settings: Settings) -> Result<(), Failure> {
        let paced = Paced {
            rate: self.rate.unwrap_or(100_000),
            seconds: self.seconds.unwrap_or(10),
            keys: self.keys.unwrap_or(1000),
        };
        latency::run(paced, settings, self.json)
    }

    /// A file that is read.
    fn files(&self, settings: Settings) -> Result<(), Failure> {
        let format = self.files.format.as_deref().unwrap_or("csv");
        if !files::FORMATS.contains(&format) {
            return Err(usage(&format!(
                "there is no format '{format}' to measure\n  help: use one of {}",
                files::FORMATS.join(", ")
            )));
        }
        let files = Files {
            format: format.to_string(),
            records: self.records.unwrap_or(20_000_000),
            keys: self.keys.unwrap_or(1000),
            file: self.files.file.clone(),
            generate_only: self.generate_only,
            settings,
            json: self.json,
        };
        files.run()
    }

    /// The query of NEXMark that the workload is.
    pub(crate) fn nexmark_query(&self) -> Option<&str> {
        self.workload.strip_prefix(nexmark::PREFIX)
    }

    /// A query of NEXMark.
    fn nexmark(&self, settings: Settings) -> Result<(), Failure> {
        let nexmark = Nexmark {
            query: self.nexmark_query().unwrap_or_default().to_string(),
            events: self.records.unwrap_or(2_000_000),
            generate_only: self.generate_only,
            settings,
            json: self.json,
        };
        nexmark.run()
    }

    /// A workload.
    fn measure(&self, settings: Settings, pairs: &[(String, String)]) -> Result<(), Failure> {
        let spec = self.spec()?;
        let json = self.json;
        let measurement = Measurement { spec, settings, json };
        let count = self.processes.count();
        if count > 1 {
            let processes = Processes { count, fabric: self.processes.fabric() };
            return measurement.run(Runner::Processes(processes, pairs));
        }
        match self.engine {
            _ if self.generate_only => measurement.generate_only(),
            Engine::Millstream => measurement.run(Runner::Millstream),
            Engine::Handwritten => measurement.run(Runner::Handwritten),
        }
    }

    /// Specification of the generated and queried data.
    fn spec(&self) -> Result<Spec, Failure> {
        self.spec_of(self.known_workload()?)
    }

    fn spec_of(&self, workload: Workload) -> Result<Spec, Failure> {
        let mut spec = Spec { keys: self.keys, zipf: self.zipf, ..Spec::new(workload) };
        if let Some(records) = self.records {
            spec.records = records;
        }
        if spec.zipf.is_some() && spec.key_range() > ZIPF_KEYS_MAX {
            return Err(usage(&format!(
                "--zipf with {} keys: its table would take {} GB\n  help: use at most \
                 {ZIPF_KEYS_MAX} --keys",
                spec.key_range(),
                spec.key_range() >> 27
            )));
        }
        if let Some(window) = self.window {
            self.check_window(&spec, window)?;
            spec = spec.with_window(window);
        }
        // About as many bytes as a record takes in memory, twice over for the largest of them.
        let needed = spec.records.saturating_mul(48);
        if needed > 2 * Settings::default().memory_bytes {
            return Err(usage(&format!(
                "{} records take about {} GB in memory, more than this machine has\n  help: use \
                 fewer --records",
                spec.records,
                needed >> 30
            )));
        }
        Ok(spec)
    }

    fn known_workload(&self) -> Result<Workload, Failure> {
        Workload::from_name(&self.workload).ok_or_else(|| {
            let names = Workload::names();
            let like =
                millstream::program::closest(&self.workload, names.into_iter().chain(OTHERS));
            usage(&match like {
                Some(name) => format!(
                    "there is no workload '{}'\n  help: did you mean '{name}'?",
                    self.workload
                ),
                None => format!(
                    "there is no workload '{}'\n  help: use one of {}, {}",
                    self.workload,
                    names.join(", "),
                    OTHERS.join(", ")
                ),
            })
        })
    }
}
