//! The processes of the benchmark, which talk to their parent by lines: the job's token, set-up
//! messages, a start, a report. With the parent their input ends, and then the processes end too.
//! Meanwhile they send signs of life, so that a stalled process is noticed.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use millstream_fabric::Fabric;
use millstream_fabric::setup::{HELLO_BYTES, Hello, Token};
use millstream_fabric::shm::ShmDevice;
use millstream_flow::shuffle::{Error, ReceiverSetup, SenderSetup};

use super::node::Node;
use super::options::{Options, ShuffleFailure};
use super::report::{NodeReport, Report};

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

/// Interval of signs of life.
const BEAT: Duration = Duration::from_millis(500);
/// Silence after which a process counts as stalled. Longer than a machine with many threads for
/// each processor delays a thread.
const SILENCE: Duration = Duration::from_secs(20);
/// How long a process may take to end after it has closed its output.
const ENDING: Duration = Duration::from_secs(1);

/// A started process, killed when it is dropped.
struct Process {
    number: usize,
    child: Child,
    /// Lines for the process. A thread writes them, since a stalled process does not read.
    to: Sender<Arc<str>>,
    heard: Instant,
}

impl Drop for Process {
    fn drop(&mut self) {
        // The process may have ended by itself, as it should.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Process {
    /// Starts the process. Its lines go to `lines` with its number, and its end as `None`.
    fn start(
        number: usize,
        mut command: Command,
        lines: Sender<(usize, Option<String>)>,
    ) -> Result<Process, ShuffleFailure> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let gone = || io::Error::from(io::ErrorKind::BrokenPipe);
        let mut input = child.stdin.take().ok_or_else(gone)?;
        let output = BufReader::new(child.stdout.take().ok_or_else(gone)?);
        let (to, own) = channel::<Arc<str>>();
        let process = Process { number, child, to, heard: Instant::now() };
        let thread = |name: &str| std::thread::Builder::new().name(format!("shuffle {name}"));
        thread("writer").spawn(move || {
            // If it takes no more, its end is noticed where it is read.
            own.into_iter().try_for_each(|line| writeln!(input, "{line}"))
        })?;
        thread("reader").spawn(move || {
            let all = output.lines().map_while(io::Result::ok).map(Some);
            all.chain([None]).try_for_each(|line| lines.send((number, line)))
        })?;
        Ok(process)
    }

    /// Exit status of the process, if it has ended.
    fn status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Whether the process was stopped by a signal.
    fn is_stopped(&self) -> bool {
        let state = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()));
        // The state is behind the name in brackets; the name may have brackets itself.
        let state = state.ok().and_then(|text| text.rsplit_once(") ")?.1.chars().next());
        matches!(state, Some('T' | 't'))
    }
}

/// Measures between processes of this host, over `shm`. `command` is a command that calls
/// [`child`] with the options, the process's number, and its standard streams.
pub fn measure(
    options: &Options,
    command: impl Fn(&Options, usize) -> Command,
) -> Result<Report, ShuffleFailure> {
    options.check()?;
    let token = Token::random()?;
    let (to, lines) = channel();
    let start = |number| Process::start(number, command(options, number), to.clone());
    let all: Result<Vec<_>, _> = (0..options.processes).map(start).collect();
    let mut processes = Processes { all: all?, lines };
    let nodes = processes.lead(&token).map_err(|failure| processes.cause(failure))?;
    Report::new(*options, nodes)
}

/// The processes of a run, and what they say.
struct Processes {
    all: Vec<Process>,
    lines: Receiver<(usize, Option<String>)>,
}

impl Processes {
    fn say(&self, line: &str) {
        let line: Arc<str> = line.into();
        // A process that takes no lines has ended, as its reader notices.
        self.all.iter().for_each(|process| drop(process.to.send(line.clone())));
    }

    /// Rest of each process's line that begins with `word`, in any order of arrival.
    fn hear(&mut self, word: &str) -> Result<Vec<String>, ShuffleFailure> {
        let mut heard: Vec<Option<String>> = vec![None; self.all.len()];
        let mut looked = Instant::now();
        while heard.iter().any(Option::is_none) {
            let next = self.lines.recv_timeout(BEAT);
            let now = Instant::now();
            if now - looked > SILENCE / 2 {
                // This process did not run either.
                self.all.iter_mut().for_each(|process| process.heard = now);
            }
            looked = now;
            if let Ok((process, line)) = next {
                self.all[process].heard = now;
                let end = line.is_none();
                let line = line.unwrap_or_default();
                match line.split_once(MARK).and_then(|(_, rest)| rest.split_once(' ')) {
                    Some(("runs", _)) => {}
                    Some((said, rest)) if said == word && heard[process].is_none() => {
                        heard[process] = Some(rest.into());
                    }
                    None if !end => {}
                    _ => return Err(ShuffleFailure::Said { process, line }),
                }
            }
            if let Some(silent) = self.all.iter().find(|one| now - one.heard > SILENCE) {
                return Err(ShuffleFailure::Silent { process: silent.number, time: SILENCE });
            }
        }
        Ok(heard.into_iter().flatten().collect())
    }

    /// Leads them through a run.
    fn lead(&mut self, token: &Token) -> Result<Vec<NodeReport>, ShuffleFailure> {
        self.say(&to_hex(token.bytes()));
        let hellos = self.hear("hellos")?;
        self.say(&hellos.join(" "));
        // Everybody is connected before anybody begins.
        self.hear("ready")?;
        self.say("go");
        let unreadable = |process, line| ShuffleFailure::Said { process, line };
        let reports = self.hear("report")?.into_iter().enumerate();
        let decoded = reports
            .map(|(process, line)| NodeReport::decode(&line).ok_or(unreadable(process, line)));
        decoded.collect()
    }

    /// Cause of the failure: the first failed process takes others along. A process that was
    /// killed, or stopped, has not failed because of another.
    fn cause(&mut self, failure: ShuffleFailure) -> ShuffleFailure {
        let begin = Instant::now();
        loop {
            let ended = |one: &mut Process| Some((one.number, one.status()?));
            let ended: Vec<_> = self.all.iter_mut().filter_map(ended).collect();
            if let Some((process, status)) = ended.iter().find(|(_, it)| it.signal().is_some()) {
                return ShuffleFailure::Ended { process: *process, status: *status };
            }
            if let Some(stopped) = self.all.iter().find(|process| process.is_stopped()) {
                return ShuffleFailure::Stopped { process: stopped.number };
            }
            if matches!(failure, ShuffleFailure::Silent { .. }) {
                return failure;
            }
            if let Some((process, status)) = ended.iter().find(|(_, it)| !it.success()) {
                return ShuffleFailure::Ended { process: *process, status: *status };
            }
            if begin.elapsed() > ENDING {
                return failure;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Input from the parent process.
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

    fn line(&self) -> Result<String, ShuffleFailure> {
        self.lines.recv().map_err(|_| ShuffleFailure::Orphan)
    }
}

/// Where a process says what it has to say, a line at a time.
struct Output(Arc<Mutex<Box<dyn Write + Send>>>);

impl Output {
    fn say(&self, word: &str, rest: &str) -> io::Result<()> {
        let mut output = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        output.write_all(format!("{MARK}{word} {rest}\n").as_bytes())?;
        output.flush()
    }
}

/// A thread that sends signs of life until dropped.
struct Beat {
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Beat {
    fn new(output: Output) -> io::Result<Beat> {
        let (end, ended) = channel();
        let thread = std::thread::Builder::new().name("shuffle beat".into()).spawn(move || {
            while output.say("runs", ".").is_ok()
                && ended.recv_timeout(BEAT) == Err(RecvTimeoutError::Timeout)
            {}
        })?;
        Ok(Beat { end: Some(end), thread: Some(thread) })
    }
}

impl Drop for Beat {
    fn drop(&mut self) {
        drop(self.end.take());
        drop(self.thread.take().map(JoinHandle::join));
    }
}

/// Work of a process started by [`measure`].
pub fn child(
    options: &Options,
    process: usize,
    input: Box<dyn Read + Send>,
    output: Box<dyn Write + Send>,
) -> Result<(), ShuffleFailure> {
    let output = Output(Arc::new(Mutex::new(output)));
    let beat = Beat::new(Output(output.0.clone()))?;
    let parent = Parent::new(input)?;
    let done = take_part(options, process, &parent, &output);
    drop(beat);
    done.map_err(|failure| failure.seen_by(process, options))
}

/// Takes part in a run.
fn take_part(
    options: &Options,
    process: usize,
    parent: &Parent,
    output: &Output,
) -> Result<(), ShuffleFailure> {
    let line = || parent.line();
    let unreadable = |line: &str| ShuffleFailure::Said { process, line: line.into() };
    let text = line()?;
    let bytes = of_hex(&text).and_then(|bytes| bytes.try_into().ok());
    let token = Token::new(bytes.ok_or_else(|| unreadable("a token"))?);
    let device = ShmDevice::open(token)?;
    let begin = Instant::now();
    let open = Open::new(&device, options, process)?;
    output.say("hellos", &open.describe(&token)?)?;
    let all = line()?;
    let all: Option<Vec<Vec<u8>>> = all.split(' ').map(of_hex).collect();
    let all = all.ok_or_else(|| unreadable("set-up messages"))?;
    let mut node = open.connect(&token, process, &all).ok_or_else(|| unreadable("hellos"))??;
    node.setup = begin.elapsed();
    output.say("ready", ".")?;
    if line()? != "go" {
        return Err(unreadable("no start"));
    }
    let report = node.work(options, process, &parent.gone)?;
    output.say("report", &report.encode())?;
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
        // `Options::process_of` goes back.
        let id = |half: usize, e: usize| ((process * 2 + half) * endpoints + e) as u32;
        let sender = |e| SenderSetup::new(device, id(0, e), processes, settings);
        let receiver = |e| ReceiverSetup::new(device, id(1, e), processes, settings);
        let senders = (0..endpoints).map(sender).collect::<Result<_, _>>()?;
        let receivers = (0..endpoints).map(receiver).collect::<Result<_, _>>()?;
        Ok(Open { processes, senders, receivers })
    }

    /// All set-up messages: endpoint by endpoint, peer by peer, first the sender's.
    fn describe(&self, token: &Token) -> Result<String, ShuffleFailure> {
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
