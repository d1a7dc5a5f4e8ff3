//! The processes of the benchmark. They talk to the one that started them by lines: the job's
//! token, set-up messages, a start, a report. Its end is the end of their input, and they end too.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use millstream_fabric::Fabric;
use millstream_fabric::setup::{HELLO_BYTES, Hello, Token};
use millstream_fabric::shm::ShmDevice;

use super::node::Node;
use super::{Failure, NodeReport, Options, Report};
use crate::error::Error;
use crate::receive::ReceiverSetup;
use crate::send::SenderSetup;

/// In front of every line of a process.
const MARK: &str = "@shuffle ";

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn of_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> =
        text.chars().map(|digit| digit.to_digit(16).map(|digit| digit as u8)).collect();
    let (pairs, []) = digits.as_deref()?.as_chunks::<2>() else { return None };
    Some(pairs.iter().map(|[high, low]| high << 4 | low).collect())
}

/// A started process, killed when it is dropped.
struct Process {
    number: usize,
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself, as it should.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Process {
    /// How it has ended, if it has.
    fn status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    fn say(&mut self, line: &str) -> Result<(), Failure> {
        let gone = || io::Error::from(io::ErrorKind::BrokenPipe);
        let input = self.child.stdin.as_mut().ok_or_else(gone)?;
        writeln!(input, "{line}")?;
        Ok(input.flush()?)
    }

    /// The rest of its next line that begins with the mark and this word.
    fn hear(&mut self, word: &str) -> Result<String, Failure> {
        loop {
            let mut line = String::new();
            let end = self.output.read_line(&mut line)? == 0;
            let line = line.trim_end();
            match line.split_once(MARK).and_then(|(_, rest)| rest.split_once(' ')) {
                Some((found, rest)) if found == word => return Ok(rest.into()),
                None if !end => {}
                _ => return Err(Failure::Said { process: self.number, line: line.into() }),
            }
        }
    }
}

/// Measures between processes of this host, over `shm`. `command` is a command that calls
/// [`child`] with the options, the process's number, and its standard streams.
pub fn run(
    options: &Options,
    command: impl Fn(&Options, usize) -> Command,
) -> Result<Report, Failure> {
    options.check()?;
    let token = Token::random()?;
    let start = |number: usize| -> Result<Process, Failure> {
        let mut child =
            command(options, number).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let gone = || io::Error::from(io::ErrorKind::BrokenPipe);
        let output = BufReader::new(child.stdout.take().ok_or_else(gone)?);
        Ok(Process { number, child, output })
    };
    let processes: Result<Vec<_>, _> = (0..options.processes).map(start).collect();
    let mut processes = processes?;
    let nodes = lead(&mut processes, &token).map_err(|failure| cause(&mut processes, failure))?;
    Report::new(*options, nodes)
}

/// How long a process may take to end after it has closed its output.
const ENDING: Duration = Duration::from_secs(1);

/// Why it failed: whoever failed first takes others with it, and one that was killed has not failed
/// because of another.
fn cause(processes: &mut [Process], failure: Failure) -> Failure {
    let begin = Instant::now();
    loop {
        let ended = |one: &mut Process| Some((one.number, one.status()?));
        let ended: Vec<_> = processes.iter_mut().filter_map(ended).collect();
        let killed = ended.iter().find(|(_, status)| status.signal().is_some());
        let failed = || ended.iter().find(|(_, status)| !status.success());
        if let Some((process, status)) = killed.or_else(failed) {
            return Failure::Ended { process: *process, status: *status };
        }
        if begin.elapsed() > ENDING {
            return failure;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Leads the processes through a run.
fn lead(processes: &mut [Process], token: &Token) -> Result<Vec<NodeReport>, Failure> {
    for process in processes.iter_mut() {
        process.say(&to_hex(token.bytes()))?;
    }
    let hellos: Result<Vec<_>, _> = processes.iter_mut().map(|one| one.hear("hellos")).collect();
    let hellos = hellos?.join(" ");
    for process in processes.iter_mut() {
        process.say(&hellos)?;
    }
    // Everybody is connected before anybody begins.
    for process in processes.iter_mut() {
        process.hear("ready")?;
    }
    for process in processes.iter_mut() {
        process.say("go")?;
    }
    let mut nodes = Vec::new();
    for process in processes.iter_mut() {
        let line = process.hear("report")?;
        let process = process.number;
        nodes.push(NodeReport::decode(&line).ok_or(Failure::Said { process, line })?);
    }
    Ok(nodes)
}

/// What comes from the process that started this one.
struct Parent {
    lines: Receiver<String>,
    gone: Arc<AtomicBool>,
}

impl Parent {
    /// Reads in a thread of its own, which ends with the input, or with this process.
    fn new(input: Box<dyn Read + Send>) -> io::Result<Parent> {
        let (to, lines) = channel();
        let gone = Arc::new(AtomicBool::new(false));
        let flag = gone.clone();
        std::thread::Builder::new().name("shuffle parent".into()).spawn(move || {
            for line in BufReader::new(input).lines().map_while(Result::ok) {
                drop(to.send(line));
            }
            flag.store(true, Ordering::Release);
        })?;
        Ok(Parent { lines, gone })
    }

    fn line(&self) -> Result<String, Failure> {
        self.lines.recv().map_err(|_| Failure::Orphan)
    }
}

/// What a process does that [`run`] has started.
// Not generic: it would be compiled where it is called, as that crate is, and be measured so.
pub fn child(
    options: &Options,
    process: usize,
    input: Box<dyn Read + Send>,
    output: &mut dyn Write,
) -> Result<(), Failure> {
    let parent = Parent::new(input)?;
    let line = || parent.line();
    let unreadable = |line: &str| Failure::Said { process, line: line.into() };
    let text = line()?;
    let bytes = of_hex(&text).and_then(|bytes| bytes.try_into().ok());
    let token = Token::new(bytes.ok_or_else(|| unreadable("a token"))?);
    let device = ShmDevice::open(token)?;
    let begin = Instant::now();
    let open = Open::new(&device, options, process)?;
    writeln!(output, "{MARK}hellos {}", open.describe(&token)?)?;
    let all = line()?;
    let all: Option<Vec<Vec<u8>>> = all.split(' ').map(of_hex).collect();
    let all = all.ok_or_else(|| unreadable("set-up messages"))?;
    let mut node = open.connect(&token, process, &all).ok_or_else(|| unreadable("hellos"))??;
    node.setup = begin.elapsed();
    writeln!(output, "{MARK}ready .")?;
    if line()? != "go" {
        return Err(unreadable("no start"));
    }
    let report = node.work(options, process, &parent.gone)?;
    writeln!(output, "{MARK}report {}", report.encode())?;
    output.flush()?;
    // The others may still be reading.
    drop(line());
    Ok(())
}

/// The endpoints of a process, not connected.
struct Open<F: Fabric> {
    processes: usize,
    senders: Vec<SenderSetup<F>>,
    receivers: Vec<ReceiverSetup<F>>,
}

impl<F: Fabric> Open<F> {
    fn new(device: &F, options: &Options, process: usize) -> Result<Open<F>, Error> {
        let (settings, processes) = (options.settings(), options.processes);
        let endpoints = options.design.endpoints_of(options.threads);
        let id = |half: usize, e: usize| ((process * 2 + half) * endpoints + e) as u32;
        let sender = |e| SenderSetup::new(device, id(0, e), processes, settings);
        let receiver = |e| ReceiverSetup::new(device, id(1, e), processes, settings);
        let senders = (0..endpoints).map(sender).collect::<Result<_, _>>()?;
        let receivers = (0..endpoints).map(receiver).collect::<Result<_, _>>()?;
        Ok(Open { processes, senders, receivers })
    }

    /// All set-up messages: endpoint by endpoint, peer by peer, first the sender's.
    fn describe(&self, token: &Token) -> Result<String, Failure> {
        let mut bytes = Vec::new();
        for (sender, receiver) in self.senders.iter().zip(&self.receivers) {
            for peer in 0..self.processes {
                for hello in [sender.hello(peer), receiver.hello(peer)] {
                    let encoded = hello.encode(token).map_err(millstream_fabric::Error::from)?;
                    bytes.extend_from_slice(&encoded);
                }
            }
        }
        Ok(to_hex(&bytes))
    }

    /// Connects to everybody; `None` if a message is missing or wrong.
    fn connect(
        self,
        token: &Token,
        process: usize,
        all: &[Vec<u8>],
    ) -> Option<Result<Node<F>, Error>> {
        let processes = self.processes;
        let hello = |of: &[u8], e: usize, half: usize| {
            let start = ((e * processes + process) * 2 + half) * HELLO_BYTES;
            let message = of.get(start..start + HELLO_BYTES)?.try_into().ok()?;
            Hello::decode(message, token).ok()
        };
        let hellos = |e: usize, half: usize| -> Option<Vec<Hello>> {
            all.iter().map(|of| hello(of, e, half)).collect()
        };
        let mut node =
            Node { senders: Vec::new(), receivers: Vec::new(), setup: Default::default() };
        for (e, (sender, receiver)) in self.senders.into_iter().zip(self.receivers).enumerate() {
            let (to_sender, to_receiver) = (hellos(e, 1)?, hellos(e, 0)?);
            match sender.connect(&to_sender) {
                Ok(sender) => node.senders.push(sender),
                Err(error) => return Some(Err(error)),
            }
            match receiver.connect(&to_receiver) {
                Ok(receiver) => node.receivers.push(receiver),
                Err(error) => return Some(Err(error)),
            }
        }
        Some(Ok(node))
    }
}
