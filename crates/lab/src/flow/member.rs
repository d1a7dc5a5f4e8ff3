//! The processes of a measured run: members of a job of processes, each of which has its part.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use millstream::program::cluster::{
    Cause, Cluster, Early, Fault, Interrupt, Launch, Member, Parts, ProcessFailure, Stops, now_us,
};
use millstream::{Error as JobError, SplitSpec};
use millstream_dfi::{RegistryClient, RegistryService};
use millstream_fabric::setup::{Hello, Token};
use millstream_fabric::shm::ShmDevice;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::failure::{FlowFailure, FlowResult};
use super::job::Job;
use super::part::Part;

/// The task of a process: the job, and the registry's address.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FlowTask {
    flow: Job,
    registry: SocketAddr,
}

/// Runs a job between processes of this host, over `shm`. `launch` starts a [`FlowMember`] for
/// each; `watch` as in [`Launch::run`]. Returns what each process says.
pub(super) fn run_job<G>(
    job: &Job,
    launch: &Launch,
    watch: impl FnOnce(Interrupt) -> G,
) -> FlowResult<Vec<Value>> {
    let ends = launch.run(|interrupt| Ok(watch(interrupt)), |cluster| lead(cluster, job));
    ends.map_err(|early| match early {
        Early::Own(failure) => failure,
        Early::Failed(reason, _) => FlowFailure::Process(reason),
    })
}

/// Leads the processes through a run.
fn lead(cluster: &Cluster, job: &Job) -> Result<Vec<Value>, Early<FlowFailure>> {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let service = RegistryService::open(*cluster.token(), any).map_err(FlowFailure::from);
    let service = service.map_err(Early::Own)?;
    job.publish(service.local()).map_err(Early::Own)?;
    let task = FlowTask { flow: job.clone(), registry: service.address() };
    let mut member = None;
    cluster.set_up("shm", &json!(task), || {
        member = Some(FlowMember::new(task.clone(), 0, cluster.token())?);
        Ok(())
    })?;
    let Some(member) = member.as_mut() else {
        return Err(ProcessFailure::new(0, Cause::Rubbish("no member".into())).into());
    };
    cluster.execute(member, 0, now_us())?;
    cluster.connect(member)?;
    Ok(cluster.run(member)?)
}

/// A process's member in a run.
pub struct FlowMember {
    task: FlowTask,
    process: u32,
    device: ShmDevice,
    registry: RegistryClient,
    /// Kept after the run: other processes may still be reading.
    part: Option<Box<dyn Part>>,
}

impl FlowMember {
    /// The member for process `process`.
    pub fn new(task: FlowTask, process: usize, token: &Token) -> Result<FlowMember, Fault> {
        let device = ShmDevice::open(*token).map_err(Fault::run)?;
        let registry = RegistryClient::new(*token, task.registry);
        Ok(FlowMember { task, process: process as u32, device, registry, part: None })
    }

    fn part(&mut self) -> Result<&mut Box<dyn Part>, Fault> {
        let out_of_turn = || JobError::Internal("a step of a flow out of turn".into());
        self.part.as_mut().ok_or_else(|| Fault::run(out_of_turn()))
    }
}

/// A loss or a stop has its cause in another process.
fn fault(failure: FlowFailure) -> Fault {
    match failure {
        FlowFailure::Flow(millstream_dfi::Error::PeerLost { .. }) | FlowFailure::Stopped => {
            Fault::consequence(failure)
        }
        own => Fault::run(own),
    }
}

impl Member for FlowMember {
    fn execute(&mut self, _statement: usize, _start_us: i64) -> Result<Option<Parts>, Fault> {
        Ok(Some(Parts::new().with("flow", json!(self.task.flow).to_string())))
    }

    fn prepare(&mut self, _: &[Vec<SplitSpec>]) -> Result<Vec<Vec<Hello>>, Fault> {
        let job = &self.task.flow;
        let part = job.join(self.process, &self.device, &self.registry).map_err(fault)?;
        self.part = Some(part);
        Ok(vec![Vec::new(); job.processes()])
    }

    fn connect(&mut self, _: Vec<Vec<Hello>>) -> Result<Parts, Fault> {
        let registry = self.registry.clone();
        self.part()?.connect(&registry).map_err(fault)?;
        Ok(Parts::new())
    }

    fn run(&mut self, stops: &Stops) -> (Value, Result<(), Fault>) {
        let stopped = Arc::new(AtomicBool::new(false));
        let stop = stopped.clone();
        stops.set(move |_| stop.store(true, Ordering::Release));
        let run = self.part().and_then(|part| part.run(&stopped).map_err(fault));
        match run {
            Ok(end) => (end, Ok(())),
            Err(fault) => (Value::Null, Err(fault)),
        }
    }

    fn commit(&mut self) -> Result<(), Fault> {
        Ok(())
    }
}
