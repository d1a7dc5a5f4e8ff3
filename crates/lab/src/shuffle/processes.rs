//! The processes of the benchmark: members of a job, each of which moves its share of the tuples.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use millstream::program::cluster::{
    Cause, Cluster, Early, Fault, Interrupt, Launch, Member, Parts, ProcessFailure, Stops, now_us,
};
use millstream::{Error as JobError, SplitSpec};
use millstream_fabric::Fabric;
use millstream_fabric::setup::{Hello, Token};
use millstream_fabric::shm::ShmDevice;
use millstream_flow::shuffle::{Error, ReceiverSetup, SenderSetup};
use serde_json::{Value, json};

use super::node::Node;
use super::options::{Options, ShuffleFailure};
use super::report::{NodeReport, Report};

/// Measures between processes of this host, over `shm`. `launch` starts as many processes as the
/// options say, each with a [`ShuffleMember`]; `watch` as in [`Launch::run`].
pub fn measure<G>(
    options: &Options,
    launch: &Launch,
    watch: impl FnOnce(Interrupt) -> G,
) -> Result<Report, ShuffleFailure> {
    options.check()?;
    let nodes = launch.run(|interrupt| Ok(watch(interrupt)), |cluster| lead(cluster, options));
    let nodes = nodes.map_err(|early| match early {
        Early::Own(failure) => failure,
        Early::Failed(reason, _) => ShuffleFailure::Process(reason),
    })?;
    Report::new(*options, nodes)
}

/// Leads the processes through a run.
fn lead(cluster: &Cluster, options: &Options) -> Result<Vec<NodeReport>, Early<ShuffleFailure>> {
    let mut own = None;
    cluster.set_up("shm", &json!(options.to_string()), || {
        own = Some(ShuffleMember::new(options, 0, cluster.token())?);
        Ok(())
    })?;
    let unreadable =
        |process| ProcessFailure::new(process, Cause::Rubbish("no numbers of a shuffle".into()));
    let own = own.as_mut().ok_or_else(|| unreadable(0))?;
    cluster.execute(own, 0, now_us())?;
    cluster.connect(own)?;
    let ends = cluster.run(own)?.into_iter().enumerate();
    let report = |(process, end): (usize, Value)| {
        let report = end.as_str().and_then(NodeReport::decode);
        report.ok_or_else(|| unreadable(process).into())
    };
    ends.map(report).collect()
}

/// A process's part in a run.
pub struct ShuffleMember {
    options: Options,
    process: usize,
    device: ShmDevice,
    begin: Instant,
    open: Option<Open<ShmDevice>>,
    /// Kept after the run: other processes may still be reading.
    node: Option<Node<ShmDevice>>,
}

impl ShuffleMember {
    /// The part of process `process`.
    pub fn new(options: &Options, process: usize, token: &Token) -> Result<ShuffleMember, Fault> {
        let device = ShmDevice::open(*token).map_err(Fault::run)?;
        let begin = Instant::now();
        Ok(ShuffleMember { options: *options, process, device, begin, open: None, node: None })
    }

    fn fault(&self, failure: impl Into<ShuffleFailure>) -> Fault {
        match failure.into().seen_by(&self.options) {
            peer @ (ShuffleFailure::Peer { .. } | ShuffleFailure::Stopped) => {
                Fault::consequence(peer)
            }
            own => Fault::run(own),
        }
    }
}

/// A step came too early or twice.
fn out_of_turn() -> Fault {
    Fault::run(JobError::Internal("a step of a shuffle out of turn".into()))
}

impl Member for ShuffleMember {
    fn execute(&mut self, _statement: usize, _start_us: i64) -> Result<Option<Parts>, Fault> {
        Ok(Some(Parts::new().with("options", self.options.to_string())))
    }

    fn prepare(&mut self, _: &[Vec<SplitSpec>]) -> Result<Vec<Vec<Hello>>, Fault> {
        self.begin = Instant::now();
        let open = Open::new(&self.device, &self.options, self.process);
        let open = open.map_err(|e| self.fault(e))?;
        let hellos = (0..self.options.processes).map(|peer| open.hellos(peer)).collect();
        self.open = Some(open);
        Ok(hellos)
    }

    fn connect(&mut self, hellos: Vec<Vec<Hello>>) -> Result<Parts, Fault> {
        let open = self.open.take().ok_or_else(out_of_turn)?;
        let mut node = open.connect(&hellos, |e| self.fault(e))?;
        node.setup = self.begin.elapsed();
        self.node = Some(node);
        Ok(Parts::new())
    }

    fn run(&mut self, stops: &Stops) -> (Value, Result<(), Fault>) {
        let Some(node) = &self.node else { return (Value::Null, Err(out_of_turn())) };
        let stopped = Arc::new(AtomicBool::new(false));
        let stop = stopped.clone();
        stops.set(move |_| stop.store(true, Ordering::Release));
        match node.work(&self.options, self.process, &stopped) {
            Ok(report) => (json!(report.encode()), Ok(())),
            Err(failure) => (Value::Null, Err(self.fault(failure))),
        }
    }

    fn commit(&mut self) -> Result<(), Fault> {
        Ok(())
    }
}

/// The endpoints of a process, not connected.
struct Open<F: Fabric> {
    senders: Vec<SenderSetup<F>>,
    receivers: Vec<ReceiverSetup<F>>,
}

impl<F: Fabric> Open<F> {
    fn new(device: &F, options: &Options, process: usize) -> Result<Open<F>, Error> {
        let (settings, processes) = (options.settings(), options.processes);
        let endpoints = options.design.endpoints_of(options.threads);
        // `Options::process_of` goes back.
        let id = |half: usize, e: usize| ((process * 2 + half) * endpoints + e) as u32;
        let sender = |e| SenderSetup::new(device, id(0, e), processes, settings);
        let receiver = |e| ReceiverSetup::new(device, id(1, e), processes, settings);
        let senders = (0..endpoints).map(sender).collect::<Result<_, _>>()?;
        let receivers = (0..endpoints).map(receiver).collect::<Result<_, _>>()?;
        Ok(Open { senders, receivers })
    }

    /// Set-up messages for a peer: endpoint by endpoint, first the sender's.
    fn hellos(&self, peer: usize) -> Vec<Hello> {
        let pairs = self.senders.iter().zip(&self.receivers);
        pairs.flat_map(|(sender, receiver)| [sender.hello(peer), receiver.hello(peer)]).collect()
    }

    /// Connects to everybody, with the messages of every process.
    fn connect(
        self,
        hellos: &[Vec<Hello>],
        fault: impl Fn(Error) -> Fault,
    ) -> Result<Node<F>, Fault> {
        let endpoints = self.senders.len();
        if hellos.iter().any(|of_peer| of_peer.len() != 2 * endpoints) {
            return Err(Fault::run("a process has another number of endpoints"));
        }
        let of = |at: usize| hellos.iter().map(|of_peer| of_peer[at].clone()).collect::<Vec<_>>();
        let mut node = Node { senders: vec![], receivers: vec![], setup: Default::default() };
        for (e, (sender, receiver)) in self.senders.into_iter().zip(self.receivers).enumerate() {
            node.senders.push(sender.connect(&of(2 * e + 1)).map_err(&fault)?);
            node.receivers.push(receiver.connect(&of(2 * e)).map_err(&fault)?);
        }
        Ok(node)
    }
}
