//! Workers in processes of their own, and a coordinator in this one. A worker is this binary, which
//! executes itself; the two talk by lines.

#![allow(dead_code, reason = "each of the binaries uses a part")]

mod loaded;
pub(crate) mod tpch;

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SessionState, SessionStateBuilder};
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion_distributed::{
    ChannelResolver, DistributedExt, SessionStateBuilderExt, Worker, WorkerQueryContext,
    WorkerResolver,
};
use millstream_datafusion_shuffle::{Config, Counters, Exchange, ExchangeServer, ShuffleResolver};
use millstream_fabric::Fabric;
use millstream_fabric::setup::Token;
use millstream_fabric::shm::ShmDevice;
use millstream_fabric::tcp::TcpDevice;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use url::Url;

/// In front of every line of a worker.
const MARK: &str = "@worker ";
/// What a worker is: `flight`, or a provider with a design and the job's token.
const WHAT: &str = "MILLSTREAM_TEST_WORKER";
/// Set where a worker has its tables in memory.
const LOADED: &str = "MILLSTREAM_TEST_LOADED";
/// Partitions of a task.
pub(crate) const PARTITIONS: usize = 2;

/// How batches travel.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Way {
    /// As `datafusion-distributed` does by itself.
    Flight,
    Shm(Config),
    Tcp(Config),
}

/// A coordinator's context and its exchange's counters.
pub(crate) struct Coordinator {
    pub(crate) context: SessionContext,
    counters: Box<dyn Fn() -> Counters>,
}

/// A worker's process, killed when it is dropped.
pub(crate) struct Process {
    child: Child,
    output: BufReader<ChildStdout>,
    url: Url,
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Process {
    /// Its address.
    pub(crate) fn url(&self) -> &Url {
        &self.url
    }

    /// The rest of its next line that begins with the mark and this word.
    fn hear(&mut self, word: &str) -> String {
        loop {
            let mut line = String::new();
            let read = self.output.read_line(&mut line).expect("a worker's output");
            assert!(read > 0, "a worker has ended before it said {word:?}");
            let said = line.trim_end().split_once(MARK).and_then(|(_, said)| said.split_once(' '));
            if let Some((found, rest)) = said
                && found == word
            {
                return rest.into();
            }
        }
    }

    /// What its exchange has done so far.
    pub(crate) fn counters(&mut self) -> Counters {
        self.say("counters");
        let line = self.hear("counters");
        let values: Vec<u64> =
            line.split_whitespace().map(|value| value.parse().expect("a number")).collect();
        Counters::of_values(&values).expect("all counters")
    }

    /// Bytes of the fabric's shared memory that the kernel says it has mapped.
    pub(crate) fn mapped_bytes(&self) -> u64 {
        let maps = format!("/proc/{}/maps", self.child.id());
        let maps = std::fs::read_to_string(maps).expect("a process that runs");
        let bytes = |line: &str| {
            let range = line.split_whitespace().next()?;
            let (from, to) = range.split_once('-')?;
            Some(u64::from_str_radix(to, 16).ok()? - u64::from_str_radix(from, 16).ok()?)
        };
        let ours = maps.lines().filter(|line| line.contains("/memfd:millstream"));
        ours.map(|line| bytes(line).expect("a range of addresses")).sum()
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, name: &str) {
        let mut kill = Command::new("kill");
        kill.args(["-s", name, &self.child.id().to_string()]);
        assert!(kill.status().expect("the program kill").success());
    }

    fn say(&mut self, line: &str) {
        let input = self.child.stdin.as_mut().expect("a pipe");
        writeln!(input, "{line}").expect("a worker that listens");
    }
}

/// Workers and their coordinator.
pub(crate) struct Cluster {
    pub(crate) processes: Vec<Process>,
    pub coordinator: Coordinator,
}

/// What a cluster is made of.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Options {
    pub(crate) processes: usize,
    pub(crate) way: Way,
    /// Whether one side of each join goes to all tasks, instead of both being repartitioned.
    pub(crate) broadcast: bool,
    /// Whether workers have their tables in memory, instead of reading them in every query.
    pub(crate) loaded: bool,
}

impl Options {
    pub(crate) fn new(processes: usize, way: Way) -> Options {
        Options { processes, way, broadcast: false, loaded: false }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn token(text: &str) -> Token {
    let byte = |at: usize| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).expect("hex");
    Token::new(std::array::from_fn(byte))
}

impl Cluster {
    /// Starts workers, each a process of this binary. Of tests it runs one, [`worker_process`]; a
    /// benchmark calls [`worker`] itself.
    pub(crate) fn start(options: Options) -> Cluster {
        let token = Token::random().expect("randomness");
        let what = match options.way {
            Way::Flight => "flight".into(),
            Way::Shm(config) => format!("shm {}", describe(&config, &token)),
            Way::Tcp(config) => format!("tcp {}", describe(&config, &token)),
        };
        let start = |_| {
            let mut command = Command::new(std::env::current_exe().expect("this binary"));
            if options.loaded {
                command.env(LOADED, "1");
            }
            let mut child = command
                .args(["--ignored", "--exact", "cluster::worker_process", "--nocapture"])
                .env(WHAT, &what)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .expect("a process");
            let output = BufReader::new(child.stdout.take().expect("a pipe"));
            let url = Url::parse("http://localhost").expect("a URL");
            Process { child, output, url }
        };
        let mut processes: Vec<Process> = (0..options.processes).map(start).collect();
        for process in &mut processes {
            let port = process.hear("port");
            process.url = Url::parse(&format!("http://127.0.0.1:{port}")).expect("a URL");
        }
        let urls = processes.iter().map(|process| process.url.clone()).collect();
        let coordinator = match options.way {
            Way::Flight => flight_coordinator(urls, options.broadcast),
            Way::Shm(config) => coordinator(shm(token), token, config, urls, options.broadcast),
            Way::Tcp(config) => coordinator(tcp(token), token, config, urls, options.broadcast),
        };
        let coordinator = coordinator.expect("a coordinator");
        Cluster { processes, coordinator }
    }

    /// Counters of all processes, added up.
    pub(crate) fn counters(&mut self) -> Counters {
        let mut all = (self.coordinator.counters)();
        for process in &mut self.processes {
            all += process.counters();
        }
        all
    }
}

/// A configuration as a worker reads it.
fn describe(config: &Config, token: &Token) -> String {
    let Config { design, message_bytes, depth, credit_every, lanes, .. } = config;
    let Config { window_bytes, copy_below_bytes, .. } = config;
    let token = hex(token.bytes());
    format!(
        "{token} {design} {message_bytes} {depth} {credit_every} {lanes} {window_bytes} \
         {copy_below_bytes}"
    )
}

fn undescribe(text: &str) -> (Token, Config) {
    let parts: Vec<&str> = text.split_whitespace().collect();
    let number = |at: usize| parts[at].parse::<u64>().expect("a number");
    let config = Config {
        message_bytes: number(2) as usize,
        depth: number(3) as u32,
        credit_every: number(4) as u32,
        lanes: number(5) as u32,
        window_bytes: number(6),
        copy_below_bytes: number(7) as usize,
        ..Config::new(parts[1].parse().expect("a design"))
    };
    (token(parts[0]), config)
}

fn shm(token: Token) -> ShmDevice {
    ShmDevice::open(token).expect("shared memory")
}

fn tcp(token: Token) -> TcpDevice {
    let address: SocketAddr = "127.0.0.1:0".parse().expect("an address");
    TcpDevice::open(token, address).expect("a port")
}

/// The workers' addresses.
struct Workers(Vec<Url>);

impl WorkerResolver for Workers {
    fn get_urls(&self) -> Result<Vec<Url>> {
        Ok(self.0.clone())
    }
}

fn builder(urls: Vec<Url>, broadcast: bool) -> Result<SessionStateBuilder> {
    let config =
        SessionConfig::new().with_target_partitions(PARTITIONS).with_repartition_joins(!broadcast);
    SessionStateBuilder::new()
        .with_default_features()
        .with_config(config)
        .with_distributed_planner()
        .with_distributed_worker_resolver(Workers(urls))
        // Tables are small, and shall be spread over all workers nevertheless.
        .with_distributed_file_scan_config_bytes_per_partition(1)
}

fn flight_coordinator(urls: Vec<Url>, broadcast: bool) -> Result<Coordinator> {
    let context = SessionContext::from(builder(urls, broadcast)?.build());
    Ok(Coordinator { context, counters: Box::new(Counters::default) })
}

fn coordinator<F: Fabric>(
    fabric: F,
    token: Token,
    config: Config,
    urls: Vec<Url>,
    broadcast: bool,
) -> Result<Coordinator> {
    let exchange = Exchange::new(fabric, token, config)?;
    let builder = builder(urls, broadcast)?
        .with_distributed_channel_resolver(ShuffleResolver::new(&exchange));
    let context = SessionContext::from(builder.build());
    Ok(Coordinator { context, counters: Box::new(move || exchange.counters()) })
}

/// A single process's context, with as many partitions as a task has.
pub(crate) fn alone() -> SessionContext {
    SessionContext::new_with_config(SessionConfig::new().with_target_partitions(PARTITIONS))
}

/// Rows as text, in the order of their texts.
pub(crate) fn rows(batches: &[RecordBatch]) -> Vec<String> {
    let options = FormatOptions::default();
    let mut rows = Vec::new();
    for batch in batches {
        let columns: Vec<_> = batch
            .columns()
            .iter()
            .map(|column| ArrayFormatter::try_new(column, &options).expect("a column"))
            .collect();
        for row in 0..batch.num_rows() {
            let values: Vec<String> =
                columns.iter().map(|column| column.value(row).to_string()).collect();
            rows.push(values.join("|"));
        }
    }
    rows.sort();
    rows
}

/// Whether this process was started as a worker.
pub(crate) fn is_worker() -> bool {
    std::env::var(WHAT).is_ok()
}

/// What tests start as a worker's process.
#[test]
#[ignore = "started by other tests"]
fn worker_process() {
    worker();
}

/// What a worker's process does, if this is one. It ends with its standard input.
pub(crate) fn worker() {
    let Ok(what) = std::env::var(WHAT) else {
        println!("started by other tests only");
        return;
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    match what.split_once(' ') {
        None => runtime.block_on(flight_worker()),
        Some(("shm", rest)) => {
            let (token, config) = undescribe(rest);
            runtime.block_on(exchange_worker(shm(token), token, config));
        }
        Some((_, rest)) => {
            let (token, config) = undescribe(rest);
            runtime.block_on(exchange_worker(tcp(token), token, config));
        }
    }
    std::process::exit(0);
}

async fn listen() -> TcpIncoming {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    println!("{MARK}port {}", listener.local_addr().expect("an address").port());
    TcpIncoming::from(listener).with_nodelay(Some(true))
}

/// Answers lines until standard input ends.
fn answer(counters: impl Fn() -> Counters + Send + 'static) -> tokio::task::JoinHandle<()> {
    tokio::task::spawn_blocking(move || {
        for line in std::io::stdin().lines() {
            if line.expect("a line") == "counters" {
                let values: Vec<String> = counters().values().iter().map(u64::to_string).collect();
                println!("{MARK}counters {}", values.join(" "));
            }
        }
    })
}

/// A session of a worker.
fn session(builder: SessionStateBuilder) -> SessionState {
    match std::env::var_os(LOADED) {
        Some(_) => builder.with_distributed_worker_plan_rewrite_handler(loaded::load).build(),
        None => builder.build(),
    }
}

async fn flight_worker() {
    let worker = Worker::from_session_builder(|query: WorkerQueryContext| async {
        Ok::<_, DataFusionError>(session(query.builder))
    });
    let server = Server::builder().add_service(worker.into_worker_server());
    let incoming = listen().await;
    tokio::select! {
        served = server.serve_with_incoming(incoming) => served.expect("a server"),
        _ = answer(Counters::default) => {}
    }
}

async fn exchange_worker<F: Fabric>(fabric: F, token: Token, config: Config) {
    let exchange = Exchange::new(fabric, token, config).expect("an exchange");
    let resolver: Arc<dyn ChannelResolver + Send + Sync> =
        Arc::new(ShuffleResolver::new(&exchange));
    let worker = Worker::from_session_builder(move |query: WorkerQueryContext| {
        let builder = query.builder.with_distributed_channel_resolver(resolver.clone());
        async move { Ok::<_, DataFusionError>(session(builder)) }
    });
    let server = Server::builder()
        .add_service(ExchangeServer::new(&exchange, worker.clone()))
        .add_service(worker.into_worker_server());
    let incoming = listen().await;
    tokio::select! {
        served = server.serve_with_incoming(incoming) => served.expect("a server"),
        _ = answer(move || exchange.counters()) => {}
    }
}
