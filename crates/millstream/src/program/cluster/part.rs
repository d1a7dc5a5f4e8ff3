//! A process's part of a query on several processes: fabric, channels and job.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use arrow::datatypes::Schema;
use millstream_checkpoint::{
    JobToSave, Opening, Options, Others, Place as SavedPlace, Saver, join, open,
};
use millstream_contract::plan::Plan;
use millstream_contract::settings::{SettingError, machine_memory_bytes};
use millstream_contract::sink::{Sink, commit_all, mark_all};
use millstream_contract::table::SplitSpec;
use millstream_contract::{Error, Settings};
use millstream_engine::network::{Mesh, MeshOptions, MeshSetup, Place, check_rows};
use millstream_engine::{Job, Remains, Stats, Stopper};
use millstream_fabric::setup::{Hello, Token};
use millstream_fabric::shm::ShmDevice;
use millstream_fabric::tcp::TcpDevice;
use millstream_fabric::verbs::{self, Verbs};
use millstream_fabric::{self as fabric, Fabric, Provider};
use millstream_flow::channel;
use millstream_sql::sql_type_name;

use super::failure::{Cause, Fault, ProcessFailure};
use super::fitting::{check_pinned, check_settings};
use super::limits;
use super::link::SILENCE_MAX;
use super::member::{Checkpoints, Stops};
use super::parts::Parts;
use super::saving::Saving;
use crate::program::planned::Planned;

/// The control connection detects a silent process, and knows its number; this limit is for a
/// connection that fails alone. A device that rounds (verbs) keeps to less.
const CHANNEL_SILENCE: Duration = SILENCE_MAX.saturating_add(Duration::from_millis(750));

/// The connection between the processes of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FabricName {
    /// Shared memory.
    Shm,
    /// TCP.
    Tcp,
    /// An RDMA device.
    Verbs,
}

impl FabricName {
    /// As it is written on the command line.
    pub fn name(self) -> &'static str {
        match self {
            FabricName::Shm => Provider::Shm.name(),
            FabricName::Tcp => Provider::Tcp.name(),
            FabricName::Verbs => Provider::Verbs.name(),
        }
    }
}

impl FromStr for FabricName {
    type Err = Fault;

    fn from_str(text: &str) -> Result<FabricName, Fault> {
        let all = [FabricName::Shm, FabricName::Tcp, FabricName::Verbs];
        let found = all.into_iter().find(|fabric| fabric.name() == text);
        found.ok_or_else(|| Fault::usage(format!("there is no fabric '{text}'")))
    }
}

/// How the other processes of a job reach a process.
#[derive(Debug, Clone, Copy)]
pub struct Reach {
    /// Connection of the processes.
    pub fabric: FabricName,
    /// Address of the process's host, where the fabric is TCP.
    pub host: IpAddr,
}

impl From<FabricName> for Reach {
    /// Within a host.
    fn from(fabric: FabricName) -> Reach {
        Reach { fabric, host: Ipv4Addr::LOCALHOST.into() }
    }
}

/// The open device of a process.
enum Device {
    Shm(ShmDevice),
    Tcp(TcpDevice),
    Verbs(Verbs),
}

impl Device {
    fn open(fabric: FabricName, token: &Token, host: IpAddr) -> Result<Device, Fault> {
        let device = match fabric {
            FabricName::Shm => ShmDevice::open(*token).map(Device::Shm),
            FabricName::Tcp => TcpDevice::open(*token, SocketAddr::new(host, 0)).map(Device::Tcp),
            FabricName::Verbs => Verbs::open(&verbs::Options::default()).map(Device::Verbs),
        };
        let help = match fabric {
            FabricName::Verbs => {
                "\n  help: --fabric shm and --fabric tcp connect processes of one machine without a device"
            }
            FabricName::Shm | FabricName::Tcp => "",
        };
        let failed = |e| limits::explained(&format!("fabric '{}': {e}{help}", fabric.name()));
        device.map_err(|e| Fault::run(failed(e)))
    }

    fn channels(&self, place: Place, options: MeshOptions) -> channel::Result<Box<dyn Channels>> {
        fn make<F: Fabric>(
            fabric: &F,
            place: Place,
            options: MeshOptions,
        ) -> channel::Result<Box<dyn Channels>> {
            let mut channels = channel::Settings::default();
            if fabric.provider() == Provider::Tcp {
                channels.timing.silence = CHANNEL_SILENCE;
            }
            Ok(Box::new(MeshSetup::new(fabric, place, options, channels)?))
        }
        match self {
            Device::Shm(device) => make(device, place, options),
            Device::Tcp(device) => make(device, place, options),
            Device::Verbs(device) => make(device, place, options),
        }
    }
}

/// Channels of a process over whichever fabric, not connected yet.
trait Channels {
    fn hellos(&self, peer: usize) -> Vec<Hello>;
    fn connect(self: Box<Self>, from: &[Vec<Hello>]) -> channel::Result<Mesh>;
}

impl<F: Fabric> Channels for MeshSetup<F> {
    fn hellos(&self, peer: usize) -> Vec<Hello> {
        MeshSetup::hellos(self, peer)
    }
    fn connect(self: Box<Self>, from: &[Vec<Hello>]) -> channel::Result<Mesh> {
        MeshSetup::connect(*self, from)
    }
}

/// A process's part of one query after the other. The calls come in the order of
/// [`Member`](super::Member)'s.
pub struct QueryPart {
    place: Place,
    device: Device,
    fabric: FabricName,
    planned: Option<Ready>,
    /// The checkpoints of the last query, if it has any.
    saving: Option<Saving>,
    channels: Option<Box<dyn Channels>>,
    job: Option<Job>,
    /// Where the rows of the last query have gone.
    sinks: Vec<Arc<dyn Sink>>,
    /// Of the last query, which other processes may not have ended yet.
    /// The names of the tables that the sinks are of.
    targets: Vec<String>,
    remarks: Vec<String>,
    remains: Option<Remains>,
}

/// A query with all that it takes to make a job of it.
struct Ready {
    planned: Planned,
    settings: Settings,
    sinks: Vec<Arc<dyn Sink>>,
    start_us: i64,
    /// Where checkpoints are kept, if they are.
    saved: Option<Options>,
}

impl Ready {
    /// Opens or joins the checkpoints of the query.
    fn save<T>(&self, processes: usize, with: impl FnOnce(&JobToSave<'_>) -> T) -> T {
        with(&JobToSave {
            plan: &self.planned.plan,
            settings: &self.settings,
            text: self.planned.targets.join(", "),
            targets: &self.planned.targets,
            sinks: &self.sinks,
            type_name: &|of| sql_type_name(of),
            processes,
            started_us: self.start_us,
        })
    }
}

impl QueryPart {
    /// Opens the fabric for process `process` of `processes` processes.
    pub fn open(
        reach: impl Into<Reach>,
        token: &Token,
        process: usize,
        processes: usize,
    ) -> Result<QueryPart, Fault> {
        let Reach { fabric, host } = reach.into();
        let (place, device) = (Place { process, processes }, Device::open(fabric, token, host)?);
        Ok(QueryPart {
            place,
            device,
            fabric,
            planned: None,
            saving: None,
            channels: None,
            job: None,
            sinks: Vec::new(),
            targets: Vec::new(),
            remarks: Vec::new(),
            remains: None,
        })
    }

    /// Takes a query that has been planned, with a sink for each of its outputs, unless the
    /// settings do not go with so many processes. Returns what has to be the same in all processes.
    pub fn plan(
        &mut self,
        planned: Planned,
        settings: &Settings,
        sinks: Vec<Arc<dyn Sink>>,
        start_us: i64,
    ) -> Result<Parts, SettingError> {
        self.plan_saved(planned, settings, sinks, start_us, None)
    }

    /// As [`QueryPart::plan`], for a query whose checkpoints are kept as `saved` says.
    pub(crate) fn plan_saved(
        &mut self,
        planned: Planned,
        settings: &Settings,
        sinks: Vec<Arc<dyn Sink>>,
        start_us: i64,
        saved: Option<Options>,
    ) -> Result<Parts, SettingError> {
        // All have ended the one before.
        (self.remains, self.sinks, self.saving) = (None, Vec::new(), None);
        check_settings(self.place.processes, settings)?;
        if self.fabric == FabricName::Verbs {
            check_pinned(self.place.processes, settings.memory_bytes, machine_memory_bytes())?;
        }
        let parts = Parts::new()
            .with("version", env!("CARGO_PKG_VERSION"))
            .with("plan", planned.explain.as_str())
            .with("logical plan", planned.logical.as_str())
            .with("schema", schemas(&planned.plan))
            .with("fabric", self.fabric.name())
            .with("settings", by_line(settings));
        let settings = planned.settings(settings);
        self.planned = Some(Ready { planned, settings, sinks, start_us, saved });
        Ok(parts)
    }

    /// Opens the checkpoints of the planned query, in process 0; `notice` is told of checkpoints
    /// that cannot be written.
    pub(crate) fn open_saved(
        &mut self,
        notice: impl Fn(&str) + Send + Sync + 'static,
    ) -> Result<Checkpoints, Fault> {
        let ready = self.planned.as_ref().ok_or_else(out_of_turn)?;
        let Some(saved) = &ready.saved else { return Ok(Checkpoints::None) };
        let opening = ready.save(self.place.processes, |job| open(saved, job, notice));
        match opening.map_err(fault)? {
            Opening::Runs(opened) => {
                let place = opened.place.clone();
                self.saving = Some(Saving::new(*opened, saved.every));
                Ok(Checkpoints::At(place))
            }
            Opening::Ended(number) => {
                // The job may have been killed before.
                mark_all(&ready.sinks).map_err(fault)?;
                self.planned = None;
                Ok(Checkpoints::Ended(number))
            }
        }
    }

    /// Takes part in the checkpoints that process 0 has opened.
    pub(crate) fn join_saved(&mut self, place: SavedPlace) -> Result<(), Fault> {
        let ready = self.planned.as_ref().ok_or_else(out_of_turn)?;
        let saved = ready.saved.as_ref().ok_or_else(out_of_turn)?;
        let opened = ready.save(self.place.processes, |job| join(saved, job, place));
        self.saving = Some(Saving::new(opened.map_err(fault)?, saved.every));
        Ok(())
    }

    /// How much there is in the splits of each of the query's tables, where that can change.
    /// Process 0 is asked before the others hear of the query.
    pub fn splits(&self) -> Result<Vec<Vec<SplitSpec>>, Fault> {
        let ready = self.planned.as_ref().ok_or_else(out_of_turn)?;
        check_rows(&ready.planned.plan).map_err(fault)?;
        let sources = ready.planned.plan.sources.iter();
        sources.map(|source| source.table.splits()).collect::<Result<_, _>>().map_err(fault)
    }

    /// Makes the channels, for a query that will read no more than `splits`; what each process has
    /// to be told, by process.
    pub fn prepare(&mut self, splits: &[Vec<SplitSpec>]) -> Result<Vec<Vec<Hello>>, Fault> {
        let ready = self.planned.as_mut().ok_or_else(out_of_turn)?;
        let plan = &mut ready.planned.plan;
        for (source, splits) in plan.sources.iter_mut().zip(splits) {
            if let Some(table) = source.table.with_splits(splits) {
                source.table = table;
            }
        }
        plan.pack_small_input(splits, &ready.settings);
        let ready = self.planned.as_ref().ok_or_else(out_of_turn)?;
        let stages = ready.planned.plan.state_stages();
        let options = MeshOptions::new(&ready.settings, stages);
        let channels = self.device.channels(self.place, options);
        let channels = channels.map_err(|e| {
            let mut fault = self.channels_failed(&e);
            let takes = match e {
                channel::Error::Fabric(fabric::Error::Os { call: "ibv_reg_mr", .. }) => "pins its budget",
                channel::Error::Fabric(fabric::Error::Os { call: "mmap", .. }) => {
                    "reserves addresses for its budget (ulimit -v)"
                }
                _ => return fault,
            };
            fault.message += &format!(
                "\n  help: each process {takes}, here {} MB: raise the limit, or lower the setting 'memory'",
                ready.settings.memory_bytes >> 20
            );
            fault
        })?;
        let hellos = (0..self.place.processes).map(|peer| channels.hellos(peer)).collect();
        self.channels = Some(channels);
        Ok(hellos)
    }

    /// Connects the channels and opens the sources. Returns what has to be the same in all
    /// processes.
    pub fn connect(&mut self, hellos: &[Vec<Hello>]) -> Result<Parts, Fault> {
        let ready = self.planned.take().ok_or_else(out_of_turn)?;
        let channels = self.channels.take().ok_or_else(out_of_turn)?;
        let lost = |e| {
            let fault = self.channels_failed(&e);
            // The process at the lost end reports a better reason.
            match limits::is_about_open_files(&fault.message) {
                true => fault,
                false => Fault::consequence(fault.message),
            }
        };
        let mesh = channels.connect(hellos).map_err(lost)?;
        let Ready { planned, settings, sinks, start_us, .. } = ready;
        let (plan, sinks_of_job) = (&planned.plan, sinks.clone());
        let job = match &self.saving {
            None => Job::distributed(plan, &settings, sinks_of_job, mesh, start_us),
            Some(saving) => {
                let from = saving.from();
                Job::distributed_from(plan, &settings, sinks_of_job, mesh, start_us, from)
            }
        };
        let job = job.map_err(fault)?;
        let parts = Parts::new().with("splits", job.splits().join("\n"));
        self.remarks = Vec::new();
        if let Some(saving) = &mut self.saving {
            saving.stopper = Some(job.stopper());
            self.remarks = std::mem::take(&mut saving.remarks);
        }
        self.remarks.extend_from_slice(job.remarks());
        (self.job, self.sinks, self.targets) = (Some(job), sinks, planned.targets);
        Ok(parts)
    }

    /// Remarks for the user on where the query goes on, and on the reading of the sources, once
    /// they are open.
    pub fn remarks(&self) -> &[String] {
        &self.remarks
    }

    /// Stops the query's part here, once it is connected and before it runs.
    pub fn stopper(&self) -> Option<Stopper> {
        self.job.as_ref().map(Job::stopper)
    }

    /// Runs the query; `stops` stops it.
    pub fn run(&mut self, stops: &Stops) -> (Stats, millstream_contract::Result<()>) {
        let Some(job) = self.job.take() else {
            return (Stats::default(), Err(Error::Internal("a query out of turn".into())));
        };
        let stopper = job.stopper();
        let (watched, observed) = (stopper.clone(), stopper.clone());
        stops.watch(move || watched.standing(), move || observed.observe());
        stops.set(move |ProcessFailure { process, cause }| match cause {
            Cause::Interrupted => stopper.stop(),
            cause => {
                let message = cause.to_string();
                stopper.stop_with(Error::Process { process: *process, message });
            }
        });
        // Process 0 asks for cuts.
        let asking = self.saving.as_ref().filter(|_| self.place.process == 0);
        let timer = match asking.map(|saving| saving.timer(job.stopper())).transpose() {
            Ok(timer) => timer,
            Err(error) => return (Stats::default(), Err(error)),
        };
        let waits = self.sinks.iter().any(|sink| sink.waits_for_checkpoint());
        if let Some(saving) = asking.filter(|_| waits) {
            saving.saver.cut(&job.stopper());
        }
        let (stats, result, remains) = job.run_and_keep();
        drop(timer);
        if let Some(saving) = &self.saving {
            saving.saver.wait();
        }
        if result.is_ok() {
            self.remains = Some(remains);
        }
        (stats, result)
    }

    /// The taker of the query's checkpoints, if the query has any.
    pub(crate) fn saver(&self) -> Option<&Arc<Saver>> {
        self.saving.as_ref().map(|saving| &saving.saver)
    }

    /// Report of this process for process 0 at the end of a query with checkpoints.
    pub(crate) fn part_of_end(&self) -> millstream_contract::Result<Option<Others>> {
        let saving = self.saving.as_ref().filter(|_| self.place.process > 0);
        saving.map(|saving| saving.saver.part_of_end(saving.marks()?)).transpose()
    }

    /// Takes these reports of the other processes.
    pub(crate) fn note_ends(&mut self, others: Vec<Others>) {
        if let Some(saving) = &mut self.saving {
            saving.others = others;
        }
    }

    /// Commits the query's sinks; with checkpoints, process 0 does so for all.
    pub fn commit(&mut self) -> Result<(), Fault> {
        let Some(saving) = self.saving.take() else {
            return commit_all(&self.sinks, &self.targets).map_err(fault);
        };
        if self.place.process > 0 {
            return Ok(());
        }
        let marks = saving.marks().map_err(fault)?;
        saving.saver.end(marks, saving.others).map_err(fault)
    }

    /// Has the query's sinks say that its result is complete.
    pub fn mark(&mut self) -> Result<(), Fault> {
        mark_all(&std::mem::take(&mut self.sinks)).map_err(fault)
    }

    fn channels_failed(&self, error: &channel::Error) -> Fault {
        let what = format!("channels over fabric '{}': {error}", self.fabric.name());
        Fault::run(limits::explained(&what))
    }
}

/// The columns of what is read and of the result, a line for each. How rows of state are laid out
/// follows from whether a column may be NULL, too, which no plan shows.
fn schemas(plan: &Plan) -> String {
    let lines = |of: &str, schema: &Schema| -> String {
        schema.fields().iter().map(|field| format!("{of}: {field}\n")).collect()
    };
    let inputs = plan.sources.iter().map(|source| lines("input", &source.schema));
    let results = plan.stages.iter().map(|stage| lines("result", &stage.output));
    inputs.chain(results).collect()
}

/// A line for each setting; `{:#?}` has lines with a value and no name.
fn by_line(settings: &Settings) -> String {
    format!("{settings:?}").replace("{ ", "{\n").replace(", ", ",\n")
}

fn out_of_turn() -> Fault {
    Fault::run("process 0 asks for the next step of a query that has not been planned")
}

/// The fault that a job's error means for the other processes.
pub fn fault(error: Error) -> Fault {
    match error {
        Error::PeerLost { .. }
        | Error::Peer { .. }
        | Error::Process { .. }
        | Error::Interrupted => Fault::consequence(error),
        Error::Option { .. } => Fault::usage(error),
        error => Fault::run(error),
    }
}
