//! Which options of `bench` may be combined. No option is silently ignored.

use millstream::program::cluster::FabricName;
use millstream::{Exchange, Settings};
use millstream_flow::channel::{SLOT_BYTES_MAX, SLOTS_MAX};
use millstream_workloads::Spec;
use millstream_workloads::window::{Window, WindowKind};

use super::{Bench, ChannelArguments, Engine};
use crate::Failure;
use crate::failure::usage;

impl Bench {
    /// Refuses arguments that would be ignored.
    pub(crate) fn refuse_what_does_not_apply(&self, exchange: Exchange) -> Result<(), Failure> {
        let why = self.not_with_processes();
        let why = why.or_else(|| self.not_with_workload()).or_else(|| self.not_together(exchange));
        why.map_or(Ok(()), |why| Err(usage(&why)))
    }

    fn not_with_workload(&self) -> Option<String> {
        let (what, help) = match self.workload.as_str() {
            "latency" => self.ignored_by_latency(),
            "channel" => self.ignored_by_channel(),
            "files" => self.ignored_by_files(),
            "ingest" => return self.not_with_ingest(),
            _ if self.nexmark_query().is_some() => self.ignored_by_nexmark(),
            _ => self.ignored_by_queries(),
        }
        .or_else(|| Some((self.shuffle.given(&[])?, SHUFFLES)))
        .or_else(|| Some((self.ingest.given()?, INGEST)))
        .or_else(|| Some((self.flow.given()?, FLOWS)))?;
        Some(self.not_with(what, help))
    }

    fn not_with(&self, what: &str, help: &str) -> String {
        format!("{what} does not go with the workload '{}'\n  help: {help}", self.workload)
    }

    /// Refuses arguments that a shuffle would ignore.
    pub(crate) fn refuse_what_is_no_shuffle(&self) -> Result<(), Failure> {
        let ignored = self.ignored_by_tuples().or_else(|| Some((self.flow.given()?, FLOWS)));
        self.refuse(ignored)
    }

    /// Refuses arguments that a figure of flows would ignore.
    pub(crate) fn refuse_what_is_no_flow(&self) -> Result<(), Failure> {
        let own = || Some((self.shuffle.given(&["--threads", "--tuples"])?, SHUFFLES));
        self.refuse(self.ignored_by_tuples().or_else(own))
    }

    fn refuse(&self, ignored: Option<(&str, &str)>) -> Result<(), Failure> {
        match ignored {
            Some((what, help)) => Err(usage(&self.not_with(what, help))),
            None => Ok(()),
        }
    }

    /// Ignored where processes move tuples, without a query.
    fn ignored_by_tuples(&self) -> Option<(&'static str, &'static str)> {
        const TUPLES: &str = "it moves tuples with random keys, --tuples of them";
        const NO_QUERY: &str = "it moves tuples without a query";
        let other_fabric = self.processes.fabric() != FabricName::Shm;
        first(&[
            (self.records.is_some(), "--records", TUPLES),
            (self.keys.is_some(), "--keys", TUPLES),
            (self.zipf.is_some(), "--zipf", TUPLES),
            (self.window.is_some(), "--window", WINDOWS),
            (self.exchange.is_some(), "--exchange", NO_QUERY),
            (self.generate_only, "--generate-only", NO_QUERY),
            (self.engine == Engine::Handwritten, "--engine handwritten", NO_QUERY),
            (self.settings.workers.is_some(), "--workers", "it has --threads"),
            (!self.settings.set.is_empty(), "--set", NO_QUERY),
            (other_fabric, "another --fabric than shm", "its processes share memory"),
        ])
        .or_else(|| Some((self.ingest.given()?, INGEST)))
        .or_else(|| self.ignored_by_queries())
    }

    fn not_with_processes(&self) -> Option<String> {
        let alone = [
            (
                ["files", "ingest", "latency", "channel"].contains(&self.workload.as_str())
                    || self.nexmark_query().is_some(),
                format!("the workload '{}'", self.workload),
            ),
            (self.generate_only, "--generate-only".to_string()),
            (self.engine == Engine::Handwritten, "--engine handwritten".to_string()),
        ];
        let (_, what) = alone.into_iter().find(|(given, _)| *given)?;
        let processes = self.processes.count();
        (processes > 1).then(|| {
            format!(
                "{what} does not go with --processes {processes}\n  help: it runs in one process"
            )
        })
    }

    fn ignored_by_latency(&self) -> Option<(&'static str, &'static str)> {
        const LENGTH: &str = "its length is --rate times --seconds";
        let uniform = (self.zipf.is_some(), "--zipf", "its keys are uniform");
        first(&[
            (self.window.is_some(), "--window", WINDOWS),
            (self.records.is_some(), "--records", LENGTH),
            uniform,
            (self.generate_only, "--generate-only", LENGTH),
            (self.engine == Engine::Handwritten, "--engine handwritten", LENGTH),
        ])
        .or_else(|| Some((self.channel.given()?, CHANNELS)))
    }

    fn ignored_by_files(&self) -> Option<(&'static str, &'static str)> {
        const FILE: &str = "it reads a file of --records with --keys, which are uniform";
        first(&[
            (self.zipf.is_some(), "--zipf", FILE),
            (self.window.is_some(), "--window", WINDOWS),
            (
                self.generate_only && self.files.file.is_none(),
                "--generate-only",
                "name the file, with --file",
            ),
            (self.exchange.is_some(), "--exchange", FILE),
            (self.engine == Engine::Handwritten, "--engine handwritten", FILE),
            (self.rate.is_some(), "--rate", LATENCY),
            (self.seconds.is_some(), "--seconds", LATENCY),
        ])
        .or_else(|| Some((self.channel.given()?, CHANNELS)))
    }

    fn not_with_ingest(&self) -> Option<String> {
        const PRODUCERS: &str = "its producers send records of `ro`, --records of them";
        let channel = ChannelArguments { pairs: None, ..self.channel };
        let (what, help) = first(&[
            (self.window.is_some(), "--window", WINDOWS),
            (self.generate_only, "--generate-only", PRODUCERS),
            (self.engine == Engine::Handwritten, "--engine handwritten", PRODUCERS),
            (self.rate.is_some(), "--rate", LATENCY),
            (self.seconds.is_some(), "--seconds", LATENCY),
            (self.files.format.is_some(), "--format", FILES),
            (self.files.file.is_some(), "--file", FILES),
        ])
        .or_else(|| Some((channel.given()?, CHANNELS)))
        .or_else(|| Some((self.shuffle.given(&[])?, SHUFFLES)))
        .or_else(|| Some((self.flow.given()?, FLOWS)))?;
        Some(self.not_with(what, help))
    }

    fn ignored_by_nexmark(&self) -> Option<(&'static str, &'static str)> {
        const EVENTS: &str = "its events are those of Flink's suite, --records of them";
        first(&[
            (self.keys.is_some(), "--keys", EVENTS),
            (self.zipf.is_some(), "--zipf", EVENTS),
            (self.window.is_some(), "--window", WINDOWS),
            (self.exchange.is_some(), "--exchange", "its queries have several stages"),
            (self.engine == Engine::Handwritten, "--engine handwritten", EVENTS),
        ])
        .or_else(|| self.ignored_by_queries())
    }

    fn ignored_by_channel(&self) -> Option<(&'static str, &'static str)> {
        const PLAIN: &str = "it moves plain bytes between two threads, --mib of them";
        first(&[
            (self.records.is_some(), "--records", PLAIN),
            (self.keys.is_some(), "--keys", PLAIN),
            (self.zipf.is_some(), "--zipf", PLAIN),
            (self.window.is_some(), "--window", WINDOWS),
            (self.exchange.is_some(), "--exchange", PLAIN),
            (self.generate_only, "--generate-only", PLAIN),
            (self.engine == Engine::Handwritten, "--engine handwritten", PLAIN),
            (self.settings.workers.is_some(), "--workers", PLAIN),
            (!self.settings.set.is_empty(), "--set", PLAIN),
            (self.rate.is_some(), "--rate", LATENCY),
            (self.seconds.is_some(), "--seconds", LATENCY),
        ])
    }

    fn ignored_by_queries(&self) -> Option<(&'static str, &'static str)> {
        let given = [
            (self.rate.is_some(), "--rate", LATENCY),
            (self.seconds.is_some(), "--seconds", LATENCY),
            (self.files.format.is_some(), "--format", FILES),
            (self.files.file.is_some(), "--file", FILES),
        ];
        first(&given).or_else(|| Some((self.channel.given()?, CHANNELS)))
    }

    fn not_together(&self, exchange: Exchange) -> Option<String> {
        let exchanges = self.exchange.is_some() || exchange != Exchange::LateMerge;
        let other = match self.engine {
            _ if self.generate_only => "--generate-only",
            Engine::Handwritten => "--engine handwritten",
            Engine::Millstream => return None,
        };
        let help = "nothing is exchanged there";
        exchanges.then(|| format!("--exchange does not go with {other}\n  help: {help}"))
    }

    /// Refuses windows that do not go with what else is asked for.
    pub(crate) fn check_window(&self, spec: &Spec, window: Window) -> Result<(), Failure> {
        let out_of_order = spec.watermark_delay_ms() > 0 && window.kind == WindowKind::Session;
        let why = if !spec.workload.takes_windows() {
            format!("--window does not go with the workload '{}'\n  help: {WINDOWS}", self.workload)
        } else if self.engine == Engine::Handwritten && out_of_order {
            format!(
                "--engine handwritten has no sessions for '{}'\n  help: its loop takes records in \
                 order; use another workload",
                self.workload
            )
        } else {
            return Ok(());
        };
        Err(usage(&why))
    }

    /// Refuses channels that cannot be.
    pub(crate) fn check_channel(&self) -> Result<(), Failure> {
        let channel = &self.channel;
        for (name, value, max) in [
            ("--credits", channel.credits, SLOTS_MAX),
            ("--slot-bytes", channel.slot_bytes, SLOT_BYTES_MAX),
            ("--pairs", channel.pairs, 1000),
            ("--mib", channel.mib, 1 << 20),
        ] {
            if value.is_some_and(|value| !(1..=max).contains(&value)) {
                return Err(usage(&format!("{name} has to be 1 to {max}")));
            }
        }
        match channel.slot_bytes {
            Some(bytes) if !bytes.is_multiple_of(64) => {
                Err(usage(&format!("--slot-bytes has to be a multiple of 64, not {bytes}")))
            }
            _ => Ok(()),
        }
    }

    /// Half of the workers send with split roles: there have to be two halves.
    pub(crate) fn check_roles(&self, settings: &Settings) -> Result<(), Failure> {
        let (processes, workers) = (self.processes.count(), settings.workers);
        // With a single worker each, every other process sends.
        let (what, number) = match workers {
            1 if processes > 1 => ("--processes", processes),
            _ => ("--workers", workers),
        };
        if settings.exchange != Exchange::Repartition || number.is_multiple_of(2) {
            return Ok(());
        }
        Err(usage(&format!(
            "--exchange repartition does not go with {what} {number}: half of them send, the others \
             receive\n  help: use {what} {}, or --exchange interleaved",
            number + 1
        )))
    }
}

const LATENCY: &str = "they belong to `latency`; other workloads have --records";
const WINDOWS: &str = "it belongs to ysb, ysb_small, ysb_str, nb7 and cm";
const FILES: &str = "it belongs to the workload `files`";
const INGEST: &str = "it belongs to the workload `ingest`";
const CHANNELS: &str = "it belongs to the workload `channel`";
const SHUFFLES: &str = "it belongs to the workload `shuffle`";
const FLOWS: &str = "it belongs to the workload `flow`";

/// The first option that was given, with why it makes no sense.
fn first(options: &[(bool, &'static str, &'static str)]) -> Option<(&'static str, &'static str)> {
    options.iter().find(|(given, ..)| *given).map(|(_, what, help)| (*what, *help))
}

impl ChannelArguments {
    /// The first of these options that was given.
    fn given(&self) -> Option<&'static str> {
        let given = [
            (self.slot_bytes.is_some(), "--slot-bytes"),
            (self.credits.is_some(), "--credits"),
            (self.pairs.is_some(), "--pairs"),
            (self.mib.is_some(), "--mib"),
            (self.notification.is_some(), "--notification"),
        ];
        given.iter().find(|(given, _)| *given).map(|(_, option)| *option)
    }
}
