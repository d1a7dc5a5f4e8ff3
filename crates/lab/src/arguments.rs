//! Options of several measurements: processes, workers and settings, as `millstream run` has them.

use clap::ValueEnum;
use millstream::cluster::{self, PROCESSES_MAX};

use crate::Failure;
use crate::failure::{note, usage};

/// Processes, and their connection.
#[derive(clap::Args)]
pub(crate) struct ProcessArguments {
    /// Processes to run queries on, all on this machine; `memory` and `workers` are per process
    /// [default: 1; of `shuffle` 2]
    #[arg(long, value_name = "P", allow_negative_numbers = true,
          value_parser = clap::value_parser!(u64).range(1..=PROCESSES_MAX as u64))]
    processes: Option<u64>,
    /// What processes are connected by, if there are several; `channel`: what it runs over
    /// [default: shm]
    #[arg(long, value_enum)]
    fabric: Option<FabricName>,
}

/// A fabric.
#[derive(Clone, Copy, PartialEq, ValueEnum)]
pub(crate) enum FabricName {
    /// Shared memory
    Shm,
    /// The loopback interface
    Tcp,
    /// An RDMA device
    Verbs,
}

impl FabricName {
    /// The same name for the library.
    pub(crate) fn library(self) -> cluster::FabricName {
        match self {
            FabricName::Shm => cluster::FabricName::Shm,
            FabricName::Tcp => cluster::FabricName::Tcp,
            FabricName::Verbs => cluster::FabricName::Verbs,
        }
    }
}

impl ProcessArguments {
    /// The number of processes, 1 by default.
    pub(crate) fn count(&self) -> usize {
        self.given().unwrap_or(1)
    }

    /// The number of processes, if the option was given.
    pub(crate) fn given(&self) -> Option<usize> {
        self.processes.map(|processes| processes as usize)
    }

    /// The connection of processes.
    pub(crate) fn fabric(&self) -> FabricName {
        self.fabric.unwrap_or(FabricName::Shm)
    }

    /// Says that a fabric has no effect if there is one process.
    pub(crate) fn check_fabric(&self) {
        if self.count() == 1 && self.fabric.is_some() {
            note(&"--fabric has no effect: it connects processes, and there is one (--processes)");
        }
    }
}

/// Settings of the job.
#[derive(clap::Args)]
pub(crate) struct SettingArguments {
    /// Worker threads of each process [default: processors / processes]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) workers: Option<String>,
    /// A setting, for example --set memory=1GB; may be given several times
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
}

impl SettingArguments {
    /// `--set` and `--workers` as keys and values, in the order in which they hold.
    pub(crate) fn pairs(&self) -> Result<Vec<(String, String)>, Failure> {
        let pair = |pair: &String| match pair.split_once('=') {
            Some((key, value)) => {
                Ok((key.trim().to_string(), value.trim().trim_matches('\'').to_string()))
            }
            None => {
                let expected = "expected KEY=VALUE, for example memory=1GB";
                Err(usage(&format!("--set {pair}: {expected}")))
            }
        };
        let workers = self.workers.iter().map(|n| Ok(("workers".to_string(), n.clone())));
        self.set.iter().map(pair).chain(workers).collect()
    }
}
