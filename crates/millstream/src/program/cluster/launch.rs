//! A job on several processes from its start to its end, as the coordinator sees it.

use std::ffi::OsString;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use millstream_contract::Settings;
use millstream_engine::Stats;
use millstream_fabric::setup::Token;
use serde_json::Value;

use super::children::Program;
use super::coordinator::{Cluster, Interrupt, JOIN_MAX};
use super::failure::{Cause, ProcessFailure};
use super::fitting::WORKERS_MAX;
use super::launcher::{Invitation, Launched, Launcher};
use super::limits::raise_open_files;
use super::listener::Log;
use super::transport::{Loopback, Network, Transport};

/// How long ranks may take to join. Schedulers may be slow.
pub(super) const RANKS_MAX: Duration = Duration::from_secs(300);

/// Parameters for starting the processes of a job.
#[derive(Clone)]
pub struct Launch {
    /// How many processes the job has, this one included.
    pub processes: usize,
    /// Start of each further process.
    pub launcher: Arc<dyn Launcher>,
    /// Connection of the processes to process 0.
    pub transport: Arc<dyn Transport>,
    /// The token of ranks. Without ranks a token is drawn.
    pub given: Option<Token>,
    /// Is told which strangers called.
    pub log: Log,
}

/// The launcher of ranks, which start by themselves ([`take_rank`]).
///
/// [`take_rank`]: super::take_rank
#[derive(Debug, Clone, Copy)]
pub struct Elsewhere;

impl Launcher for Elsewhere {
    fn launch(&self, _: &Invitation) -> Result<Option<Box<dyn Launched>>, ProcessFailure> {
        Ok(None)
    }
}

/// Why a job on several processes has ended early.
pub enum Early<E> {
    /// A process has failed. With the reason stands what each of the other processes told of how
    /// far it got with the last query.
    Failed(ProcessFailure, Vec<Option<Value>>),
    /// The leader of the job ended the job.
    Own(E),
}

impl<E> From<ProcessFailure> for Early<E> {
    fn from(reason: ProcessFailure) -> Early<E> {
        Early::Failed(reason, Vec::new())
    }
}

impl Launch {
    /// A start of this program once more for each further process, which these arguments tell to
    /// call [`take_part`](super::take_part).
    pub fn of_this_program(processes: usize, arguments: Vec<OsString>, log: Log) -> Launch {
        let path = std::env::current_exe().unwrap_or_else(|_| "/proc/self/exe".into());
        let launcher = Arc::new(Program { path, arguments });
        Launch { processes, launcher, transport: Arc::new(Loopback), given: None, log }
    }

    /// Waits for the other ranks, which know address and token.
    pub fn of_ranks(processes: usize, network: Network, token: Token, log: Log) -> Launch {
        let (launcher, transport) = (Arc::new(Elsewhere), Arc::new(network));
        Launch { processes, launcher, transport, given: Some(token), log }
    }

    /// Starts the other processes, lets `lead` lead them through the job, and ends them: none is
    /// left when this returns. `watch` is given a handle that stops the job; what it returns is
    /// dropped when `lead` has returned.
    pub fn run<T, E, G>(
        &self,
        watch: impl FnOnce(Interrupt) -> Result<G, E>,
        lead: impl FnOnce(&Cluster) -> Result<T, Early<E>>,
    ) -> Result<T, Early<E>> {
        // A job that needs more than it may have says so when it does.
        let _ = raise_open_files();
        let (transport, log) = (self.transport.clone(), self.log.clone());
        let patience = self.given.map_or(JOIN_MAX, |_| RANKS_MAX);
        let cluster = match self.given {
            Some(token) => Cluster::with_token(transport, self.processes, token, log),
            None => Cluster::open(transport, self.processes, log),
        }?;
        let watching = watch(cluster.interrupt()).map_err(Early::Own)?;
        let started = cluster.start_within(&*self.launcher, patience).map_err(Early::from);
        let done = started.and_then(|()| lead(&cluster));
        drop(watching);
        match done {
            Ok(done) => cluster.end().map(|()| done).map_err(Early::from),
            Err(Early::Failed(reason, _)) => {
                let (reason, others) = cluster.give_up(reason);
                Err(Early::Failed(reason, others))
            }
            Err(own) => {
                let _ = cluster.end();
                Err(own)
            }
        }
    }
}

/// The settings with which each of so many processes takes its share of its machine, where there
/// are `on_host` of them.
pub fn shared_settings(processes: usize, on_host: usize) -> Vec<(String, String)> {
    let whole = Settings::default();
    let workers = (whole.workers / on_host).clamp(1, WORKERS_MAX / processes);
    // What no process may go below.
    let memory = (whole.memory_bytes / on_host as u64).max(16 << 20);
    vec![("workers".into(), workers.to_string()), ("memory".into(), memory.to_string())]
}

/// The counters that a process has told at a query's end.
pub fn stats_of(process: usize, end: &Value) -> Result<Stats, ProcessFailure> {
    serde_json::from_value(end["stats"].clone()).map_err(|e| {
        let what = format!("counters that cannot be read: {e}");
        ProcessFailure::new(process, Cause::Rubbish(what))
    })
}

/// Now, in microseconds since the epoch.
pub fn now_us() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_micros() as i64
}
