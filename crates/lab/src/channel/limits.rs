//! The limit of each medium: how fast it is without what a channel promises.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use millstream_fabric::verbs::Verbs;
use millstream_flow::channel::Stats;

use super::transfer::{Measured, PATIENCE, fill, sum};

/// A counter on a cache line of its own.
#[repr(align(64))]
struct Line(AtomicU64);

impl Line {
    fn wait_for(&self, ready: impl Fn(u64) -> bool) {
        while !ready(self.0.load(Ordering::Acquire)) {
            std::hint::spin_loop();
        }
    }
}

/// The limit of shared memory: two threads pass `slots` buffers of `bytes` bytes round, which the
/// producer fills where the consumer sums them, with two counters and nothing else.
pub(crate) fn memory_limit(slots: usize, bytes: usize, messages: u64) -> Measured {
    /// Buffers that two threads take turns with.
    struct Buffers(Vec<std::cell::UnsafeCell<Vec<u8>>>);
    // SAFETY: the counters give every buffer to one thread at a time.
    unsafe impl Sync for Buffers {}

    let buffers = Buffers((0..slots).map(|_| vec![1; bytes].into()).collect());
    let (filled, summed) = (Line(AtomicU64::new(0)), Line(AtomicU64::new(0)));
    let start = Instant::now();
    let sum = std::thread::scope(|scope| {
        let (buffers, filled, summed) = (&buffers, &filled, &summed);
        scope.spawn(move || {
            for number in 0..messages {
                summed.wait_for(|summed| number - summed < slots as u64);
                // SAFETY: the consumer has summed this buffer, and looks again when `filled` says
                // so.
                fill(unsafe { &mut *buffers.0[number as usize % slots].get() }, number);
                filled.0.store(number + 1, Ordering::Release);
            }
        });
        let mut total = 0_u64;
        for number in 0..messages {
            filled.wait_for(|filled| filled > number);
            // SAFETY: the producer has filled this buffer, and writes again when `summed` says so.
            let buffer = unsafe { &*buffers.0[number as usize % slots].get() };
            total = total.wrapping_add(sum(buffer));
            summed.0.store(number + 1, Ordering::Release);
        }
        total
    });
    let time = start.elapsed();
    Measured { bytes: messages * bytes as u64, time, sum, stats: [Stats::default(); 2] }
}

/// The limit of TCP: a bare loop of writes and reads of whole buffers over one connection.
pub(crate) fn socket_limit(bytes: usize, messages: u64) -> io::Result<Measured> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut out = TcpStream::connect(listener.local_addr()?)?;
    let (mut into, _) = listener.accept()?;
    out.set_nodelay(true)?;
    let start = Instant::now();
    let sum = std::thread::scope(|scope| {
        let producer = scope.spawn(move || -> io::Result<()> {
            let mut buffer = vec![1; bytes];
            for number in 0..messages {
                fill(&mut buffer, number);
                out.write_all(&buffer)?;
            }
            Ok(())
        });
        let mut buffer = vec![1; bytes];
        let mut total = 0_u64;
        for _ in 0..messages {
            into.read_exact(&mut buffer)?;
            total = total.wrapping_add(sum(&buffer));
        }
        producer.join().unwrap_or_else(|_| Err(io::Error::other("the producer died")))?;
        Ok::<u64, io::Error>(total)
    })?;
    let time = start.elapsed();
    Ok(Measured { bytes: messages * bytes as u64, time, sum, stats: [Stats::default(); 2] })
}

/// Time of one way of a single cache line between two threads that do nothing but look at it.
pub(crate) fn line_limit(rounds: u32) -> Duration {
    let (ping, pong) = (Line(AtomicU64::new(0)), Line(AtomicU64::new(0)));
    std::thread::scope(|scope| {
        let (ping, pong) = (&ping, &pong);
        scope.spawn(move || {
            for round in 1..=u64::from(rounds) {
                ping.wait_for(|value| value == round);
                pong.0.store(round, Ordering::Release);
            }
        });
        let start = Instant::now();
        for round in 1..=u64::from(rounds) {
            ping.0.store(round, Ordering::Release);
            pong.wait_for(|value| value == round);
        }
        start.elapsed() / (2 * rounds.max(1))
    })
}

/// The limit of RDMA, in bytes per second: what `ib_write_bw` (of perftest) measures on this
/// device, with `messages` writes of `bytes` bytes, 8 of them under way.
pub(crate) fn write_bandwidth(device: &Verbs, bytes: usize, messages: u64) -> io::Result<f64> {
    // A port that is free now; both processes are told.
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let (name, device_port) = (device.name(), device.port().to_string());
    let mut common: Vec<String> =
        ["-d", name, "-i", &device_port, "-t", "8"].map(String::from).into();
    if let Some(index) = device.gid_index() {
        common.extend(["-x".into(), index.to_string()]);
    }
    common.extend(["-s".into(), bytes.to_string(), "-n".into(), messages.to_string()]);
    common.extend(["-p".into(), port.to_string()]);
    let mut server = Server(Command::new("ib_write_bw").args(&common).quiet().spawn()?);
    let begin = Instant::now();
    loop {
        let client = Command::new("ib_write_bw").args(&common).arg("127.0.0.1").output()?;
        if client.status.success() {
            return average(&client, bytes).ok_or_else(|| failed(&client));
        }
        // It may not listen yet.
        if begin.elapsed() >= PATIENCE || server.0.try_wait()?.is_some() {
            return Err(failed(&client));
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}

trait Quiet {
    fn quiet(&mut self) -> &mut Self;
}

impl Quiet for Command {
    fn quiet(&mut self) -> &mut Self {
        self.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null())
    }
}

/// A process that does not outlive this.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // Mostly it has ended by itself, at the same time as the client.
        for _ in 0..50 {
            if !matches!(self.0.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// The average rate in `ib_write_bw`'s line of results: bytes, messages, peak and average in MiB/s.
fn average(client: &Output, bytes: usize) -> Option<f64> {
    let text = String::from_utf8_lossy(&client.stdout).into_owned();
    let bytes = bytes.to_string();
    let line = text.lines().find(|line| line.split_whitespace().next() == Some(&bytes))?;
    let rate: f64 = line.split_whitespace().nth(3)?.parse().ok()?;
    Some(rate * f64::from(1 << 20))
}

fn failed(client: &Output) -> io::Error {
    let text = String::from_utf8_lossy(&client.stderr).into_owned();
    let last = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("no result");
    io::Error::other(format!("ib_write_bw: {last}"))
}
