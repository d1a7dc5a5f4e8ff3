//! Greetings, answers and frames of producers with rings (`docs/wire.md`).

use std::io::{self, Read, Write};
use std::net::SocketAddr;

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The first bytes of a connection.
const MAGIC: [u8; 8] = *b"MSINGEST";
/// Version of this format. Producers of version 1 cannot be sent elsewhere.
pub(crate) const VERSION: u32 = 2;
const OLDEST_VERSION: u32 = 1;
/// Bytes of a greeting or an answer at most.
const TEXT_BYTES_MAX: usize = 64 << 10;
/// Bytes of a schema at most.
const SCHEMA_BYTES_MAX: usize = 4 << 20;
/// Bytes of a frame's head.
pub(crate) const HEAD_BYTES: usize = 16;

/// The connection of a producer with a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// Shared memory, within a machine.
    Shm,
    /// TCP.
    Tcp,
    /// An RDMA device.
    Rdma,
}

/// A producer's greeting; the message of its schema follows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Greeting {
    pub(crate) table: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) producer: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) token: Option<String>,
}

/// A greeting that has come.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Greeted {
    pub(crate) greeting: Greeting,
    /// The message of the schema.
    pub(crate) schema: Bytes,
    /// Whether the producer can be sent elsewhere.
    pub(crate) follows: bool,
}

/// A job's answer. A welcome is not the last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Answer {
    /// The flow to join.
    Welcome(Welcome),
    /// The port, at the address of this connection, where another process takes the producer.
    Elsewhere(u16),
    /// The reason of a refusal.
    Refused(String),
    /// The rows that the job has taken.
    Taken(u64),
}

/// Where a producer finds its flow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Welcome {
    pub(crate) transport: Transport,
    pub(crate) flow: String,
    /// The port of the registry, at the address of this connection.
    pub(crate) registry: u16,
    pub(crate) registry_token: [u8; 32],
    /// The token of the fabric: this producer's own.
    pub(crate) token: [u8; 32],
}

/// Part of the stream of a ring: a head of 16 bytes, and what follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Frame {
    /// So many bytes of messages of Arrow IPC follow.
    Arrow(u64),
    /// A watermark in microseconds; nothing follows.
    Watermark(i64),
}

impl Frame {
    pub(crate) fn encode(self) -> [u8; HEAD_BYTES] {
        let (kind, value) = match self {
            Frame::Arrow(bytes) => (1_u64, bytes),
            Frame::Watermark(us) => (2, us as u64),
        };
        let mut head = [0; HEAD_BYTES];
        head[..8].copy_from_slice(&kind.to_le_bytes());
        head[8..].copy_from_slice(&value.to_le_bytes());
        head
    }

    pub(crate) fn decode(head: [u8; HEAD_BYTES]) -> Result<Frame, String> {
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| head[at + i]));
        match word(0) {
            1 => Ok(Frame::Arrow(word(8))),
            2 => Ok(Frame::Watermark(word(8) as i64)),
            kind => Err(format!("a frame of the unknown kind {kind}")),
        }
    }
}

fn invalid(message: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message.into())
}

/// Writes bytes behind their length.
fn put(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend((bytes.len() as u32).to_le_bytes());
    out.extend(bytes);
}

fn take(stream: &mut impl Read, bytes_max: usize) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length) as usize;
    if length > bytes_max {
        return Err(invalid(format!("{length} bytes, at most {bytes_max}")));
    }
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn parsed<T: DeserializeOwned>(bytes: &[u8]) -> io::Result<T> {
    serde_json::from_slice(bytes).map_err(|error| invalid(error.to_string()))
}

/// Sends a greeting.
pub(crate) fn greet(stream: &mut impl Write, greeting: &Greeting, schema: &[u8]) -> io::Result<()> {
    let mut out = MAGIC.to_vec();
    out.extend(VERSION.to_le_bytes());
    put(&mut out, &serde_json::to_vec(greeting)?);
    put(&mut out, schema);
    stream.write_all(&out)
}

/// Receives a greeting, and the message of a schema.
pub(crate) fn greeted(stream: &mut impl Read) -> io::Result<Greeted> {
    let mut head = [0; 12];
    stream.read_exact(&mut head)?;
    if head[..8] != MAGIC {
        return Err(invalid("this is no producer of Millstream"));
    }
    let version = u32::from_le_bytes(std::array::from_fn(|i| head[8 + i]));
    if !(OLDEST_VERSION..=VERSION).contains(&version) {
        return Err(invalid(format!("version {version} of the wire format; here it is {VERSION}")));
    }
    let greeting = parsed(&take(stream, TEXT_BYTES_MAX)?)?;
    let schema = take(stream, SCHEMA_BYTES_MAX)?.into();
    Ok(Greeted { greeting, schema, follows: version > OLDEST_VERSION })
}

/// Sends an answer.
pub(crate) fn answer(stream: &mut impl Write, answer: &Answer) -> io::Result<()> {
    let mut out = Vec::new();
    put(&mut out, &serde_json::to_vec(answer)?);
    stream.write_all(&out)
}

/// Receives an answer.
pub(crate) fn answered(stream: &mut impl Read) -> io::Result<Answer> {
    parsed(&take(stream, TEXT_BYTES_MAX)?)
}

/// The address of a registry that listens where this peer does.
pub(crate) fn registry_address(peer: SocketAddr, port: u16) -> SocketAddr {
    SocketAddr::new(peer.ip(), port)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn greetings_answers_and_frames_come_back() {
        let greeting = Greeting { table: "bids".into(), producer: Some("a".into()), token: None };
        let mut sent = Vec::new();
        greet(&mut sent, &greeting, b"schema").unwrap();
        let schema = Bytes::from_static(b"schema");
        let whole = Greeted { greeting, schema, follows: true };
        assert_eq!(greeted(&mut &sent[..]).unwrap(), whole);
        for length in 0..sent.len() {
            assert!(greeted(&mut &sent[..length]).is_err(), "{length} bytes");
        }
        let (mut strange, mut newer, mut long) = (sent.clone(), sent.clone(), sent);
        strange[0] = b'P';
        newer[8] = 3;
        long[15] = 0xff;
        for (bytes, error) in
            [(strange, "no producer of Millstream"), (newer, "version 3"), (long, "at most 65536")]
        {
            assert!(greeted(&mut &bytes[..]).unwrap_err().to_string().contains(error), "{error}");
        }
        let welcome = Welcome {
            transport: Transport::Rdma,
            flow: "bids/1".into(),
            registry: 77,
            registry_token: [8; 32],
            token: [9; 32],
        };
        let (welcome, refused) = (Answer::Welcome(welcome), Answer::Refused("no".into()));
        for sent in [welcome, Answer::Elsewhere(u16::MAX), refused, Answer::Taken(7)] {
            let mut bytes = Vec::new();
            answer(&mut bytes, &sent).unwrap();
            assert_eq!(answered(&mut &bytes[..]).unwrap(), sent);
        }
        for frame in [Frame::Arrow(u64::MAX), Frame::Watermark(-5), Frame::Watermark(i64::MAX)] {
            assert_eq!(Frame::decode(frame.encode()), Ok(frame));
        }
        assert!(Frame::decode([0; HEAD_BYTES]).is_err() && Frame::decode([3; HEAD_BYTES]).is_err());
    }

    /// Greeting and answers of all versions (`tests/golden/wire`).
    #[test]
    fn each_version_is_understood_and_the_last_is_written() {
        let greetings = [
            &include_bytes!("../../../tests/golden/wire/ring-1.greeting")[..],
            include_bytes!("../../../tests/golden/wire/ring-2.greeting"),
        ];
        for (greeting, follows) in greetings.into_iter().zip([false, true]) {
            let found = greeted(&mut &greeting[..]).unwrap();
            let (producer, token) = (Some("golden".into()), Some("s3cret".into()));
            let expected = Greeting { table: "bids".into(), producer, token };
            assert_eq!((&found.greeting, found.follows), (&expected, follows));
            assert!(arrow::ipc::root_as_message(&found.schema).is_ok());
            let mut sent = Vec::new();
            greet(&mut sent, &found.greeting, &found.schema).unwrap();
            assert_eq!(sent, greetings[1]);
        }
        let welcome = Welcome {
            transport: Transport::Shm,
            flow: "bids/1".into(),
            registry: 8816,
            registry_token: std::array::from_fn(|at| at as u8),
            token: std::array::from_fn(|at| 32 + at as u8),
        };
        let refused = Answer::Refused("no table 'bets': there is bids".into());
        let elsewhere = Answer::Elsewhere(40_123);
        let answers = include_bytes!("../../../tests/golden/wire/ring-2.answers");
        let before = include_bytes!("../../../tests/golden/wire/ring-1.answers");
        assert_eq!(answers[..before.len()], before[..], "an answer was added");
        let (mut rest, mut sent) = (&answers[..], Vec::new());
        for expected in [Answer::Welcome(welcome), refused, Answer::Taken(5), elsewhere] {
            assert_eq!(answered(&mut rest).unwrap(), expected);
            answer(&mut sent, &expected).unwrap();
        }
        assert!(rest.is_empty());
        assert_eq!(sent, answers);
    }

    #[test]
    fn damaged_greetings_are_errors_or_other_greetings() {
        let golden = include_bytes!("../../../tests/golden/wire/ring-2.greeting");
        let mut seed = 1_u64;
        let mut next = || {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) as usize
        };
        let mut failed = 0;
        for round in 0..20_000 {
            let mut damaged = golden.to_vec();
            for _ in 0..1 + round % 3 {
                // The schema has its own checks.
                let at = next() % 80;
                damaged[at] = if next() % 2 == 0 { 0xff } else { next() as u8 };
            }
            failed += usize::from(greeted(&mut &damaged[..]).is_err());
        }
        assert!(failed > 5_000, "{failed} of 20,000 are found");
    }
}
