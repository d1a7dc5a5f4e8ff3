//! The messages of the control plane. The coordinator sends requests, the others reply, and both
//! send heartbeats.
//!
//! A job's life: *Setup* → *Ready*. Then, for each statement, *Execute* → *Planned*, and if it is
//! a query, *Skip*, or perhaps *Resume*, then *Prepare* → *Hellos*, *Connect* → *Connected*,
//! *Start* → *Done*, *Commit* → *Committed*. At last *End*. *Failed* may come in place of any
//! reply. *Stopped* may come in place of *Done* (before *Failed*, if this process is the one that
//! failed). *Stop* and *Observe* may come at any time; while a query runs, *Observed* answers the
//! latter.

use std::fmt::{self, Debug};
use std::net::IpAddr;

use millstream_checkpoint::Place as SavedPlace;
use millstream_contract::table::SplitSpec;
use millstream_engine::Standing;
use millstream_engine::observe::Snapshot;
use millstream_fabric::setup::{HELLO_BYTES, Hello, Token};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use super::failure::{Fault, ProcessFailure};
use super::frame::{self, Frames};
use super::part::{FabricName, Reach};
use super::parts::Parts;

/// From process 0.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Request {
    /// Sign of life.
    Heartbeat,
    /// Description of the job.
    Setup(Setup),
    /// Execute a statement of the script, the job's clock being at `start_us` (microseconds since
    /// the epoch).
    Execute {
        /// Its place in the script, from 0.
        statement: usize,
        /// Value of `NOW()`, and start of the query's clock.
        start_us: i64,
    },
    /// The query that was planned last has checkpoints, and begins at this place. No reply.
    Resume(SavedPlace),
    /// An earlier run has ended the query that was planned last. No reply.
    Skip,
    /// Make the channels of the query that was planned last, of whose tables just those splits are
    /// read that process 0 has found.
    Prepare(Vec<Vec<SplitSpec>>),
    /// Connect them: what every process has told this one, by process.
    Connect(Vec<Vec<PackedHello>>),
    /// All are connected.
    Start,
    /// All have ended the query well: its result is complete.
    Commit,
    /// Say what the query is doing here.
    Observe,
    /// The job is over, because of this.
    Stop(ProcessFailure),
    /// The job is done.
    End,
}

/// To process 0.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Reply {
    /// Sign of life.
    Heartbeat,
    /// Sign of life, with the progress in a query.
    Standing(Standing),
    /// Snapshot of the query in this process.
    Observed(Box<Snapshot>),
    /// Set up.
    Ready,
    /// The statement was executed; with what has to be the same everywhere if it is a query.
    Planned(Option<Parts>),
    /// Set-up messages for the other processes, by process.
    Hellos(Vec<Vec<PackedHello>>),
    /// Connected to all, sources opened.
    Connected(Parts),
    /// The query has ended.
    Done(Value),
    /// Its part of the result can be seen to be complete.
    Committed,
    /// The query has stopped before its end; how far it got.
    Stopped(Value),
    /// Fault that ends this process's part.
    Failed(Fault),
    /// The process has received no message of process 0 for so many milliseconds, and ends. Process
    /// 0 reads this reply if it was only suspended.
    Unheard(u64),
}

/// Data of the job for a process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Setup {
    /// Processes of the job.
    pub processes: usize,
    /// `shm`, `tcp` or `verbs`.
    pub fabric: String,
    /// Address of the process's own host, by which it has joined. Not sent.
    #[serde(skip)]
    pub host: Option<IpAddr>,
    /// The task, in the words of the program.
    pub task: Value,
}

impl Setup {
    /// The fabric, and the process's host.
    pub fn reach(&self) -> Result<Reach, Fault> {
        let here = Reach::from(self.fabric.parse::<FabricName>()?);
        Ok(Reach { host: self.host.unwrap_or(here.host), ..here })
    }
}

/// An encoded [`Hello`], for JSON. It holds the job's token, which is not shown.
#[derive(Clone, PartialEq, Eq)]
pub struct PackedHello(Vec<u8>);

impl Debug for PackedHello {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PackedHello({} bytes)", self.0.len())
    }
}

impl PackedHello {
    /// Packs what a peer has to be told. Fails where a hello has more than its encoding holds.
    pub fn pack(hello: &Hello, token: &Token) -> Result<PackedHello, Fault> {
        hello.encode(token).map(|bytes| PackedHello(bytes.to_vec())).map_err(Fault::run)
    }

    /// The peer's set-up message.
    pub fn unpack(&self, token: &Token) -> Result<Hello, Fault> {
        let malformed = |why: String| Fault::run(format!("a peer's set-up message: {why}"));
        let bytes = self.0.as_slice().try_into();
        let bytes: &[u8; HELLO_BYTES] =
            bytes.map_err(|_| malformed(format!("it has {} bytes", self.0.len())))?;
        Hello::decode(bytes, token).map_err(|e| malformed(e.to_string()))
    }
}

impl Serialize for PackedHello {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&hex::encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for PackedHello {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<PackedHello, D::Error> {
        let text = String::deserialize(deserializer)?;
        hex::decode(text).map(PackedHello).map_err(serde::de::Error::custom)
    }
}

/// Fuzz target: any bytes, in any pieces, are messages or refused, and what was read can be written
/// and read again. Of what peers tell, the token is 32 times the byte 7.
///
/// # Panics
/// If it cannot.
pub fn fuzz(data: &[u8]) {
    fuzz_one::<Request>(data);
    fuzz_one::<Reply>(data);
    let token = Token::new([7; 32]);
    for request in read_in_pieces::<Request>(data, data.len().max(1)) {
        if let Request::Connect(hellos) = request {
            hellos.iter().flatten().for_each(|hello| drop(hello.unpack(&token)));
        }
    }
}

fn fuzz_one<M: Serialize + DeserializeOwned + PartialEq + Debug>(data: &[u8]) {
    // Once as a stream, once as the payload of a frame whose length is right.
    let framed = [&(data.len() as u32).to_le_bytes()[..], data].concat();
    for data in [data, &framed] {
        let found = read_in_pieces::<M>(data, data.len().max(1));
        assert_eq!(found, read_in_pieces::<M>(data, 3), "pieces make no difference");
        for message in found {
            let bytes = frame::encode(&message).expect("what was read can be written");
            assert_eq!(read_in_pieces::<M>(&bytes, 7).len(), 1, "{message:?}");
        }
    }
}

/// The messages before the first error.
fn read_in_pieces<M: DeserializeOwned>(data: &[u8], bytes: usize) -> Vec<M> {
    let (mut frames, mut found) = (Frames::default(), Vec::new());
    for piece in data.chunks(bytes) {
        frames.push(piece);
        loop {
            match frames.take() {
                Ok(Some(message)) => found.push(message),
                Ok(None) => break,
                Err(_) => return found,
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use millstream_contract::table::FileId;
    use millstream_fabric::{ENDPOINT_DETAIL_BYTES, Endpoint, Provider};
    use serde_json::json;

    use super::super::failure::Cause;
    use super::*;

    fn hello() -> Hello {
        let endpoint = Endpoint { provider: Provider::Tcp, detail: [5; ENDPOINT_DETAIL_BYTES] };
        Hello { endpoint, regions: Vec::new(), parameters: vec![1, 2] }
    }

    fn requests() -> Vec<Request> {
        let hello = PackedHello::pack(&hello(), &Token::new([1; 32])).unwrap();
        vec![
            Request::Heartbeat,
            Request::Setup(Setup {
                processes: 2,
                fabric: "shm".into(),
                host: None,
                task: json!({"sql": "SELECT 'ü'"}),
            }),
            Request::Execute { statement: 3, start_us: i64::MIN },
            Request::Resume((Some(u64::MAX), 7, "ü".into())),
            Request::Resume((None, 0, String::new())),
            Request::Skip,
            Request::Prepare(vec![
                vec![SplitSpec { name: "a".into(), length: None, file: None, packed: false }],
                vec![],
                vec![SplitSpec {
                    name: "b/ü.csv".into(),
                    length: Some(u64::MAX),
                    file: Some(FileId {
                        device: 1,
                        inode: u64::MAX,
                        modified: (-1, 999),
                        host: 4,
                        content: 5,
                    }),
                    packed: true,
                }],
            ]),
            Request::Connect(vec![vec![hello], vec![]]),
            Request::Start,
            Request::Observe,
            Request::Commit,
            Request::Stop(ProcessFailure::new(1, Cause::Ended("was killed".into()))),
            Request::Stop(ProcessFailure::new(2, Cause::Silent(2000))),
            Request::End,
        ]
    }

    fn replies() -> Vec<Reply> {
        vec![
            Reply::Heartbeat,
            Reply::Standing(Standing { steps: 7, waits_for: Some("x".into()) }),
            Reply::Observed(Box::new(Snapshot { records: 7, ..Snapshot::default() })),
            Reply::Ready,
            Reply::Planned(None),
            Reply::Planned(Some(Parts::new().with("plan", "scan"))),
            Reply::Hellos(vec![vec![]]),
            Reply::Connected(Parts::new()),
            Reply::Done(json!({"rows": 17})),
            Reply::Committed,
            Reply::Stopped(json!({"rows": 3})),
            Reply::Failed(Fault::usage("no")),
            Reply::Failed(Fault::consequence("process 2 is gone")),
            Reply::Unheard(2000),
        ]
    }

    /// Valid messages, mutated and cut, and noise.
    #[test]
    fn rubbish_is_refused_and_does_no_harm() {
        let mut seeds: Vec<Vec<u8>> = Vec::new();
        seeds.extend(requests().iter().map(|m| frame::encode(m).unwrap()));
        seeds.extend(replies().iter().map(|m| frame::encode(m).unwrap()));
        let mut random = 0x9e37_79b9_7f4a_7c15_u64;
        let mut next = |below: usize| {
            random ^= random >> 12;
            random ^= random << 25;
            random ^= random >> 27;
            (random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % below
        };
        for round in 0..4000 {
            let mut data = seeds[round % seeds.len()].clone();
            for _ in 0..next(4) {
                let at = next(data.len());
                match next(4) {
                    0 => data[at] = next(256) as u8,
                    1 => data.truncate(at + 1),
                    2 => data.insert(at, b"{[\"}],:0-9e"[next(11)]),
                    _ => data.extend_from_within(at..),
                }
            }
            fuzz(&data);
            fuzz(&(0..next(40)).map(|_| next(256) as u8).collect::<Vec<_>>());
        }
    }

    #[test]
    fn messages_arrive_as_they_were_sent_in_pieces_of_any_length() {
        let stream: Vec<u8> = requests().iter().flat_map(|m| frame::encode(m).unwrap()).collect();
        for bytes in [1, 2, 5, 64, stream.len()] {
            assert_eq!(read_in_pieces::<Request>(&stream, bytes), requests());
        }
        let stream: Vec<u8> = replies().iter().flat_map(|m| frame::encode(m).unwrap()).collect();
        assert_eq!(read_in_pieces::<Reply>(&stream, 9), replies());
    }

    #[test]
    fn a_length_beyond_all_messages_is_refused_before_memory_is_taken() {
        let mut frames = Frames::default();
        frames.push(&u32::MAX.to_le_bytes());
        let error = frames.take::<Request>().unwrap_err();
        assert!(error.to_string().contains("4294967295 bytes"), "{error}");
    }

    #[test]
    fn nesting_without_end_is_refused() {
        let payload = format!("{{\"Done\":{}", "[".repeat(100_000));
        let mut frames = Frames::default();
        frames.push(&(payload.len() as u32).to_le_bytes());
        frames.push(payload.as_bytes());
        assert!(frames.take::<Reply>().is_err());
    }

    #[test]
    fn what_peers_are_told_is_unpacked_with_the_right_token_only() {
        let (token, other) = (Token::new([1; 32]), Token::new([2; 32]));
        let packed = PackedHello::pack(&hello(), &token).unwrap();
        let shown = format!("Connect([[PackedHello({HELLO_BYTES} bytes)]])");
        let text = serde_json::to_string(&packed).unwrap();
        let again: PackedHello = serde_json::from_str(&text).unwrap();
        assert_eq!(again.unpack(&token).unwrap(), hello());
        assert!(text.contains("01010101"), "the token is sent");
        assert_eq!(format!("{:?}", Request::Connect(vec![vec![packed]])), shown);
        assert!(again.unpack(&other).unwrap_err().message.contains("token"));
        for text in ["\"0\"", "\"zz\"", "\"ü\"", "7"] {
            assert!(serde_json::from_str::<PackedHello>(text).is_err(), "{text}");
        }
        let short: PackedHello = serde_json::from_str("\"00ff\"").unwrap();
        assert!(short.unpack(&token).unwrap_err().message.contains("2 bytes"));
    }
}
