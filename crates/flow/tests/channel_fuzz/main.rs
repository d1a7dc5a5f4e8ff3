//! Fuzz targets for everything that a peer sends: set-up messages, frames, footers, addresses. The
//! input is good messages, mutated: a fixed number of each, or as many as `MILLSTREAM_FUZZ_SECONDS`
//! allows (`make fuzz`). A failure prints the input. `MILLSTREAM_SEED` starts from another seed.

mod stream;

use std::time::{Duration, Instant};

use millstream_fabric::setup::{HELLO_BYTES, Hello, MAGIC, Token, VERSION};
use millstream_fabric::sim::{Model, Sim};
use millstream_fabric::{ENDPOINT_DETAIL_BYTES, Endpoint, Fabric, Provider, RemoteRegion};
use millstream_flow::channel::footer::Footer;
use millstream_flow::channel::{ReceiverSetup, SenderSetup, Settings, footer};

/// Inputs of a target in the short form.
const INPUTS: u64 = 20_000;

/// The token that the libraries' targets expect.
const TOKEN: [u8; 32] = [7; 32];

/// The tests' own source of chance.
struct Chance(u64);

impl Chance {
    fn new(number: u64) -> Chance {
        let seed = std::env::var("MILLSTREAM_SEED").ok().and_then(|seed| seed.parse().ok());
        Chance(seed.unwrap_or(1_u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(number))
    }

    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % end.max(1)
    }
}

/// Values at which lengths and offsets go wrong.
const EDGES: [u64; 10] =
    [0, 1, 7, 8, 0x7fff_ffff, 0xffff_ffff, 1 << 30, 1 << 62, u64::MAX - 7, u64::MAX];

/// Changes a few places: bits, bytes, words at the edges of their range, length.
fn mutate(data: &mut Vec<u8>, chance: &mut Chance) {
    for _ in 0..1 + chance.below(4) {
        let at = chance.below(data.len() as u64) as usize;
        match chance.below(6) {
            0 if !data.is_empty() => data[at] ^= 1 << chance.below(8),
            1 if !data.is_empty() => data[at] = chance.below(256) as u8,
            2 | 3 => {
                let word = EDGES[chance.below(EDGES.len() as u64) as usize].to_le_bytes();
                let room =
                    data.len().saturating_sub(at).min(if at.is_multiple_of(2) { 8 } else { 4 });
                data[at..at + room].copy_from_slice(&word[..room]);
            }
            4 => data.truncate(at),
            _ => data.extend((0..chance.below(64)).map(|i| i as u8)),
        }
    }
}

/// How much a target is given: a number of inputs, or time.
struct Budget {
    inputs: u64,
    end: Option<Instant>,
}

impl Budget {
    fn new(inputs: u64) -> Budget {
        let seconds = std::env::var("MILLSTREAM_FUZZ_SECONDS").ok().and_then(|s| s.parse().ok());
        Budget { inputs, end: seconds.map(|s| Instant::now() + Duration::from_secs(s)) }
    }

    fn goes_on(&mut self) -> bool {
        match self.end {
            Some(end) => Instant::now() < end,
            None => {
                self.inputs = self.inputs.wrapping_sub(1);
                self.inputs != u64::MAX
            }
        }
    }
}

/// Prints the input that a panic is about.
struct Input<'a>(&'a [u8]);

impl Drop for Input<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("input: {:02x?}", self.0);
        }
    }
}

/// Gives a target the corpus, and then what mutation makes of it.
fn run(target: impl Fn(&[u8]), corpus: &[Vec<u8>]) {
    for data in corpus {
        target(data);
    }
    let (mut chance, mut budget) = (Chance::new(0), Budget::new(INPUTS));
    while budget.goes_on() {
        let mut data = corpus[chance.below(corpus.len() as u64) as usize].clone();
        mutate(&mut data, &mut chance);
        let input = Input(&data);
        target(input.0);
    }
}

fn hello(regions: usize, parameters: usize) -> Hello {
    let region = RemoteRegion { address: 1 << 20, bytes: 1 << 16, key: 3 };
    let endpoint = Endpoint { provider: Provider::Sim, detail: [1; ENDPOINT_DETAIL_BYTES] };
    Hello { endpoint, regions: vec![region; regions], parameters: vec![8; parameters] }
}

#[test]
fn set_up_messages() {
    let token = Token::new(TOKEN);
    let encoded = |regions, parameters| hello(regions, parameters).encode(&token).unwrap().into();
    let corpus: [Vec<u8>; 4] =
        [encoded(0, 0), encoded(2, 3), encoded(8, 8), vec![0xff; HELLO_BYTES]];
    run(millstream_fabric::setup::fuzz, &corpus);
}

#[test]
fn greetings_of_shared_memory() {
    let greeting = [&MAGIC[..], &VERSION.to_le_bytes(), &TOKEN].concat();
    run(millstream_fabric::shm::fuzz, &[greeting, Vec::new(), vec![0; 24]]);
}

#[test]
fn greetings_and_frames_of_tcp() {
    let greeting = [&MAGIC[..], &VERSION.to_le_bytes(), &TOKEN, &[5; 16]].concat();
    let frames = (1..=20).map(|kind| stream::frame(kind, 8, 1 << 20, 0)).collect::<Vec<_>>();
    run(millstream_fabric::tcp::fuzz, &[greeting, frames.concat(), vec![0; 120]]);
}

#[test]
fn addresses() {
    let mut corpus = vec![vec![0; Endpoint::BYTES], vec![0xff; Endpoint::BYTES]];
    for provider in 1..=4 {
        corpus.push([&[provider], &[1; ENDPOINT_DETAIL_BYTES][..]].concat());
    }
    run(millstream_fabric::verbs::fuzz, &corpus);
}

#[test]
fn footers() {
    let word = |lap| Footer::full(100).encode(lap).to_le_bytes().to_vec();
    let end = Footer::END.encode(1).to_le_bytes().to_vec();
    run(footer::fuzz, &[word(1), word(255), end, vec![0; 64]]);
}

/// A channel takes any set-up message: it connects, or says why not, and what it then writes goes
/// nowhere but to regions that are open.
#[test]
fn channels_with_any_peer() {
    let token = Token::new(TOKEN);
    let settings = Settings { slots: 2, slot_bytes: 128, ..Settings::default() };
    let (mut chance, mut budget) = (Chance::new(1), Budget::new(INPUTS / 20));
    let mut connected = 0;
    while budget.goes_on() {
        let sim = Sim::new(1);
        let (a, b) = (sim.node(Model::default()), sim.node(Model::default()));
        let (there, here) = (a.events().unwrap(), b.events().unwrap());
        let sender = SenderSetup::new(&a, &there, settings).unwrap();
        let receiver = ReceiverSetup::new(&b, &here, settings).unwrap();
        let mut data = receiver.hello().encode(&token).unwrap().to_vec();
        let sent = sender.hello();
        mutate(&mut data, &mut chance);
        data.resize(HELLO_BYTES, 0);
        let message = std::array::from_fn(|i| data[i]);
        let Ok(hello) = Hello::decode(&message, &token) else { continue };
        let input = Input(&data);
        drop(receiver.connect(&sent));
        let Ok(mut sender) = sender.connect(&hello) else { continue };
        connected += 1;
        // Until it finds out, or all credit is used up.
        while let Ok(Some(slot)) = sender.try_acquire() {
            drop(slot.send(8, 0));
        }
        sim.advance(Duration::from_secs(5));
        drop(sender.try_acquire().map(|slot| slot.is_some()));
        drop(input);
    }
    assert!(connected > 0, "no mutation left a message usable");
}
