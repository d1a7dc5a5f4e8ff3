//! Options that both programs have: processes, fabric and settings of a job. Each program prints
//! the messages in its own way.

use clap::ValueEnum;
use millstream::program::cluster::{self, PROCESSES_MAX};

/// Processes, and their connection.
#[derive(Debug, clap::Args)]
pub struct ProcessArguments {
    /// Processes to run queries on, all on this machine; `memory` and `workers` are per process
    /// [default: 1]
    #[arg(long, value_name = "P", allow_negative_numbers = true,
          value_parser = clap::value_parser!(u64).range(1..=PROCESSES_MAX as u64))]
    processes: Option<u64>,
    /// What processes are connected by, if there are several [default: shm, between hosts tcp]
    #[arg(long, value_enum)]
    fabric: Option<FabricName>,
}

/// A fabric, as it is written in an option.
#[derive(Debug, Clone, Copy, PartialEq, ValueEnum)]
enum FabricName {
    /// Shared memory
    Shm,
    /// TCP
    Tcp,
    /// An RDMA device
    Verbs,
}

impl ProcessArguments {
    /// The number of processes, 1 by default.
    pub fn count(&self) -> usize {
        self.given().unwrap_or(1)
    }

    /// The number of processes, if the option was given.
    pub fn given(&self) -> Option<usize> {
        self.processes.map(|processes| processes as usize)
    }

    /// The connection of processes on this host.
    pub fn fabric(&self) -> cluster::FabricName {
        self.given_fabric().unwrap_or(cluster::FabricName::Shm)
    }

    /// The connection of processes, if the option was given.
    pub fn given_fabric(&self) -> Option<cluster::FabricName> {
        self.fabric.map(|fabric| match fabric {
            FabricName::Shm => cluster::FabricName::Shm,
            FabricName::Tcp => cluster::FabricName::Tcp,
            FabricName::Verbs => cluster::FabricName::Verbs,
        })
    }

    /// A note for the user about a fabric without effect, since there is one process.
    pub fn fabric_note(&self) -> Option<&'static str> {
        (self.count() == 1 && self.fabric.is_some()).then_some(
            "--fabric has no effect: it connects processes, and there is one (--processes)",
        )
    }
}

/// Settings of a job.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct SettingArguments {
    /// Worker threads of each process [default: processors / processes]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub workers: Option<String>,
    /// A setting, for example --set memory=1GB; may be given several times
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub set: Vec<String>,
}

impl SettingArguments {
    /// `--set` and `--workers` as keys and values, in the order in which they hold.
    ///
    /// # Errors
    /// The message about a `--set` without a value.
    pub fn pairs(&self) -> Result<Vec<(String, String)>, String> {
        let pair = |pair: &String| match pair.split_once('=') {
            Some((key, value)) => {
                Ok((key.trim().to_string(), value.trim().trim_matches('\'').to_string()))
            }
            None => Err(format!("--set {pair}: expected KEY=VALUE, for example memory=1GB")),
        };
        let workers = self.workers.iter().map(|n| Ok(("workers".to_string(), n.clone())));
        self.set.iter().map(pair).chain(workers).collect()
    }
}
