//! `millstream-lab bench ingest`: turns its arguments into a plan.

use millstream::Settings;
use millstream_workloads::Spec;

use crate::Failure;
use crate::failure::usage;
use crate::ingest::{Ingest, QueryName, TransportName};

/// Options of `bench ingest` alone.
#[derive(clap::Args)]
pub(crate) struct IngestArguments {
    /// `ingest`: the connection of a producer [default: shm]
    #[arg(long, value_enum)]
    transport: Option<TransportName>,
    /// `ingest`: processes that send [default: 1]
    #[arg(long, value_name = "N", allow_negative_numbers = true,
          value_parser = clap::value_parser!(u64).range(1..=256))]
    producers: Option<u64>,
    /// `ingest`: bytes of a segment [default: 4 KiB to 1 MiB, in turn]
    #[arg(long, value_name = "BYTES", allow_negative_numbers = true,
          value_parser = clap::value_parser!(u64).range(4096..=4 << 20))]
    segment: Option<u64>,
    /// `ingest`: segments of a ring [default: 8]
    #[arg(long, value_name = "N", allow_negative_numbers = true,
          value_parser = clap::value_parser!(u64).range(2..=1024))]
    segments: Option<u64>,
    /// `ingest`: the job's query [default: pass]
    #[arg(long, value_enum)]
    query: Option<QueryName>,
    /// `ingest`: latency is measured at this part of the median rate; 0: not at all [default: 0.5]
    #[arg(long, value_name = "PART", allow_negative_numbers = true)]
    load: Option<f64>,
}

impl IngestArguments {
    /// The first of these options that was given.
    pub(crate) fn given(&self) -> Option<&'static str> {
        let given = [
            (self.transport.is_some(), "--transport"),
            (self.producers.is_some(), "--producers"),
            (self.segment.is_some(), "--segment"),
            (self.segments.is_some(), "--segments"),
            (self.query.is_some(), "--query"),
            (self.load.is_some(), "--load"),
        ];
        given.iter().find(|(given, _)| *given).map(|(_, option)| *option)
    }

    /// The plan of measuring with these records and settings.
    pub(crate) fn plan(
        &self,
        (spec, settings): (Spec, Settings),
        pairs: Option<usize>,
        json: bool,
    ) -> Result<Ingest, Failure> {
        let load = self.load.unwrap_or(0.5);
        if !(0.0..=2.0).contains(&load) {
            return Err(usage(&format!("--load has to be 0 to 2, not {load}")));
        }
        Ok(Ingest {
            spec,
            transport: self.transport.unwrap_or(TransportName::Shm),
            producers: self.producers.unwrap_or(1) as usize,
            segment: self.segment.map(|bytes| bytes as usize),
            segments: self.segments.unwrap_or(8) as usize,
            query: self.query.unwrap_or(QueryName::Pass),
            pairs: pairs.unwrap_or(5),
            load,
            settings,
            json,
        })
    }
}
