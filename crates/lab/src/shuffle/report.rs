//! Measurements of a run.

use std::fmt::Write as _;
use std::time::Duration;

use millstream_flow::shuffle::Counters;

use super::options::{Options, Pattern, ShuffleFailure, TUPLE_BYTES};

/// Measurements of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NodeReport {
    /// From opening until everything is connected.
    pub setup: Duration,
    /// From the first tuple until all streams have ended.
    pub time: Duration,
    /// Tuples sent, of a broadcast once, and the sum of what they are.
    pub sent: (u64, u64),
    /// Tuples received, and the same sum.
    pub received: (u64, u64),
    /// Counts of the sending endpoints.
    pub sender: Counters,
    /// Counts of the receiving endpoints.
    pub receiver: Counters,
}

impl NodeReport {
    /// As numbers, on one line.
    pub(super) fn encode(&self) -> String {
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let mut all = vec![nanoseconds(self.setup), nanoseconds(self.time)];
        all.extend([self.sent.0, self.sent.1, self.received.0, self.received.1]);
        all.extend(self.sender.values());
        all.extend(self.receiver.values());
        let words: Vec<String> = all.iter().map(u64::to_string).collect();
        words.join(" ")
    }

    pub(super) fn decode(line: &str) -> Option<NodeReport> {
        let all: Option<Vec<u64>> = line.split(' ').map(|word| word.parse().ok()).collect();
        let all = all?;
        let (head, counters) = all.split_at_checked(6)?;
        let (sender, receiver) = counters.split_at_checked(Counters::NAMES.len())?;
        Some(NodeReport {
            setup: Duration::from_nanos(head[0]),
            time: Duration::from_nanos(head[1]),
            sent: (head[2], head[3]),
            received: (head[4], head[5]),
            sender: Counters::of_values(sender)?,
            receiver: Counters::of_values(receiver)?,
        })
    }
}

/// Measurements of all processes.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// Options of the run.
    pub options: Options,
    /// By process.
    pub nodes: Vec<NodeReport>,
}

impl Report {
    /// A report whose answer is right.
    pub(super) fn new(options: Options, nodes: Vec<NodeReport>) -> Result<Report, ShuffleFailure> {
        let add =
            |(count, sum): (u64, u64), (more, of): (u64, u64)| (count + more, sum.wrapping_add(of));
        let sent = nodes.iter().map(|node| node.sent).fold((0, 0), add);
        let found = nodes.iter().map(|node| node.received).fold((0, 0), add);
        let copies = match options.pattern {
            Pattern::Repartition => 1,
            Pattern::Broadcast => options.processes as u64,
        };
        let expected = (sent.0 * copies, sent.1.wrapping_mul(copies));
        if found != expected || sent.0 != options.tuples * options.processes as u64 {
            return Err(ShuffleFailure::Answer { expected, found });
        }
        Ok(Report { options, nodes })
    }

    /// The slowest process's time.
    pub fn time(&self) -> Duration {
        self.nodes.iter().map(|node| node.time).max().unwrap_or_default()
    }

    /// The slowest process's set-up.
    pub fn setup(&self) -> Duration {
        self.nodes.iter().map(|node| node.setup).max().unwrap_or_default()
    }

    /// Bytes that a process received in a second, on average.
    pub fn bytes_per_s(&self) -> f64 {
        let tuples: u64 = self.nodes.iter().map(|node| node.received.0).sum();
        let bytes = tuples as f64 * TUPLE_BYTES as f64 / self.nodes.len() as f64;
        bytes / self.time().as_secs_f64()
    }

    /// Counts of all processes: of senders, and of receivers.
    pub fn counters(&self) -> (Counters, Counters) {
        let mut sums = (Counters::default(), Counters::default());
        for node in &self.nodes {
            sums.0 += node.sender;
            sums.1 += node.receiver;
        }
        sums
    }

    /// Requests posted for a message, at both ends together.
    pub fn operations_per_transfer(&self) -> f64 {
        let (sender, receiver) = self.counters();
        (sender.operations() + receiver.operations()) as f64 / sender.messages.max(1) as f64
    }

    /// One line of JSON.
    pub fn json(&self) -> String {
        let Options { design, pattern, processes, threads, .. } = self.options;
        let Options { message_bytes, depth, credit_every, compute_us, tuples, .. } = self.options;
        let pattern = pattern.name();
        let straggler = self.options.straggler_us.map_or("null".into(), |us| us.to_string());
        let own = Options::OWN[usize::from(self.options.keep_own)];
        let mut line = format!(
            "{{\"bench\":\"shuffle\",\"design\":\"{design}\",\"pattern\":\"{pattern}\",\
             \"processes\":{processes},\"threads\":{threads},\"message_bytes\":{message_bytes},\
             \"buffers\":\"{depth}\",\"credit_every\":{credit_every},\"compute_us\":{compute_us},\
             \"straggler_us\":{straggler},\"own\":\"{own}\",\"tuples\":{tuples}"
        );
        let (sender, receiver) = self.counters();
        // Writing to a string does not fail.
        let _ = write!(
            line,
            ",\"seconds\":{:.6},\"setup_seconds\":{:.6},\"bytes_per_s\":{:.0},\
             \"operations_per_transfer\":{:.4}",
            self.time().as_secs_f64(),
            self.setup().as_secs_f64(),
            self.bytes_per_s(),
            self.operations_per_transfer()
        );
        for (half, counters) in [("sender", sender), ("receiver", receiver)] {
            let _ = write!(line, ",\"{half}\":{{");
            let all = Counters::NAMES.iter().zip(counters.values());
            let all: Vec<String> = all.map(|(name, value)| format!("\"{name}\":{value}")).collect();
            let _ = write!(line, "{}}}", all.join(","));
        }
        line.push('}');
        line
    }
}
