//! Fuzz targets for everything that arrives at the control plane: preambles, messages, invitations.
//! The input is good messages, mutated: a fixed number of each, or as many as
//! `MILLSTREAM_FUZZ_SECONDS` allows (`make fuzz`). A failure prints the input. `MILLSTREAM_SEED`
//! starts from another seed.

use std::time::{Duration, Instant};

use millstream::program::cluster::frame::encode;
use millstream::program::cluster::message::{self, PackedHello, Reply, Request};
use millstream::program::cluster::{
    Cause, Fault, Invitation, Parts, ProcessFailure, Setup, preamble,
};
use millstream_fabric::setup::{Hello, Token};
use millstream_fabric::{ENDPOINT_DETAIL_BYTES, Endpoint, Provider};
use serde_json::json;

/// Inputs of a target in the short form.
const INPUTS: u64 = 20_000;

/// The token that the targets expect.
const TOKEN: [u8; 32] = [7; 32];

/// The tests' own source of chance.
struct Chance(u64);

impl Chance {
    fn new() -> Chance {
        let seed = std::env::var("MILLSTREAM_SEED").ok().and_then(|seed| seed.parse().ok());
        Chance(seed.unwrap_or(1_u64).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % end.max(1)
    }
}

/// What JSON is made of, and lengths at which frames go wrong.
const PIECES: [&[u8]; 16] = [
    b"{",
    b"}",
    b"[",
    b"]",
    b"\"",
    b":",
    b",",
    b"-1",
    b"1e999",
    b"18446744073709551616",
    b"null",
    b"\\ud800",
    b"\xff",
    &[0, 0, 0, 0],
    &[0xff, 0xff, 0xff, 0x03],
    &[0xff, 0xff, 0xff, 0xff],
];

/// Changes a few places: bits, bytes, pieces, length.
fn mutate(data: &mut Vec<u8>, chance: &mut Chance) {
    for _ in 0..1 + chance.below(4) {
        let at = chance.below(data.len());
        let piece = PIECES[chance.below(PIECES.len())];
        match chance.below(6) {
            0 if !data.is_empty() => data[at] ^= 1 << chance.below(8),
            1 if !data.is_empty() => data[at] = chance.below(256) as u8,
            2 => drop(data.splice(at..at, piece.iter().copied())),
            3 => {
                let end = data.len().min(at + piece.len());
                drop(data.splice(at..end, piece.iter().copied()));
            }
            4 => data.truncate(at),
            _ => data.extend_from_within(at..),
        }
        data.truncate(1 << 16);
    }
}

/// Prints the input that a panic is about.
struct Input<'a>(&'a [u8]);

impl Drop for Input<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("input: {:?}", String::from_utf8_lossy(self.0));
            println!("input: {:02x?}", self.0);
        }
    }
}

/// Gives a target the corpus, and then what mutation makes of it.
fn run(target: impl Fn(&[u8]), corpus: &[Vec<u8>]) {
    let seconds = std::env::var("MILLSTREAM_FUZZ_SECONDS").ok().and_then(|s| s.parse().ok());
    let end = seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let (mut chance, mut inputs) = (Chance::new(), 0);
    corpus.iter().for_each(|data| target(data));
    while end.map_or(inputs < INPUTS, |end| Instant::now() < end) {
        inputs += 1;
        let mut data = corpus[chance.below(corpus.len())].clone();
        mutate(&mut data, &mut chance);
        let input = Input(&data);
        target(input.0);
    }
}

fn packed() -> PackedHello {
    let endpoint = Endpoint { provider: Provider::Tcp, detail: [5; ENDPOINT_DETAIL_BYTES] };
    let hello = Hello { endpoint, regions: Vec::new(), parameters: vec![1, 2] };
    PackedHello::pack(&hello, &Token::new(TOKEN)).unwrap()
}

#[test]
fn messages() {
    let setup = Setup {
        processes: 2,
        fabric: "shm".into(),
        host: None,
        task: json!({"Script": {"text": "SELECT 1"}}),
    };
    let requests = [
        Request::Heartbeat,
        Request::Setup(setup),
        Request::Execute { statement: 3, start_us: i64::MIN },
        Request::Connect(vec![vec![packed()], vec![]]),
        Request::Stop(ProcessFailure::new(1, Cause::Ended("was killed".into()))),
        Request::Stop(ProcessFailure::new(2, Cause::Silent(2000))),
    ];
    let replies = [
        Reply::Planned(Some(Parts::new().with("plan", "scan"))),
        Reply::Hellos(vec![vec![packed()], vec![]]),
        Reply::Done(json!({"stats": {"rows": 17}})),
        Reply::Failed(Fault::consequence("process 2 is gone")),
        Reply::Unheard(2000),
    ];
    let mut corpus: Vec<Vec<u8>> = requests.iter().map(|m| encode(m).unwrap()).collect();
    corpus.extend(replies.iter().map(|m| encode(m).unwrap()));
    run(message::fuzz, &corpus);
}

#[test]
fn preambles() {
    let token = Token::new(TOKEN);
    let call = |process| preamble::call(&token, process).to_vec();
    let answer = preamble::answer(&token).to_vec();
    run(preamble::fuzz, &[call(0), call(1), call(3), call(4), answer, vec![0xff; 60]]);
}

/// Whatever is on the input, an invitation is what was written or nothing.
#[test]
fn invitations() {
    let token = "07".repeat(32);
    let line = |address: &str, process: &str| {
        format!("{{\"address\":\"{address}\",\"process\":{process},\"token\":\"{token}\"}}\n")
            .into_bytes()
    };
    let corpus = [line("127.0.0.1:4242", "1"), line("[::1]:1", "63"), vec![b'x'; 2000]];
    let whole = &corpus[..2];
    for line in whole {
        assert!(Invitation::read(&mut line.as_slice()).is_ok());
    }
    let target = |data: &[u8]| match Invitation::read(&mut &data[..]) {
        Ok(invitation) => {
            assert!(invitation.process > 0);
            assert!(!format!("{invitation:?}").contains("7, 7"), "the token is not shown");
        }
        Err(read) => assert!(read <= data.len().min(1024)),
    };
    run(target, &corpus);
}
