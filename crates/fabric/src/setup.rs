//! The set-up exchange: who is there, and may it talk to us?
//!
//! Before a queue pair is used, two processes exchange a [`Hello`] over an ordinary stream: magic
//! number, version, the job's token, the queue pair's endpoint, regions, and a few numbers that
//! belong to the protocol above. The side that was called answers only if the caller's message is
//! right, so that strangers learn nothing.

use std::fmt;
use std::io::{self, Read, Write};

use crate::endpoint::Endpoint;
use crate::error::Error;

pub use crate::error::SetupError;
use crate::memory::RemoteRegion;

/// First bytes of every set-up message.
pub const MAGIC: [u8; 8] = *b"MILLSTRM";
/// Version of the set-up exchange and of what follows it.
pub const VERSION: u32 = 1;
/// Most regions in a [`Hello`].
pub const REGIONS_MAX: usize = 8;
/// Most parameters in a [`Hello`].
pub const PARAMETERS_MAX: usize = 8;

/// Secret shared by the processes of a job.
#[derive(Clone, Copy)]
pub struct Token([u8; 32]);

impl Token {
    /// A token of these bytes.
    pub fn new(bytes: [u8; 32]) -> Token {
        Token(bytes)
    }

    /// A new random token.
    pub fn random() -> io::Result<Token> {
        let mut bytes = [0; 32];
        std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
        Ok(Token(bytes))
    }

    /// The token's bytes, for handing to the job's other processes.
    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Compares in a time that does not depend on where the first difference is.
    pub fn matches(&self, other: &[u8; 32]) -> bool {
        let difference = self.0.iter().zip(other).fold(0, |all, (a, b)| all | (a ^ b));
        std::hint::black_box(difference) == 0
    }
}

impl PartialEq for Token {
    /// As [`Token::matches`].
    fn eq(&self, other: &Token) -> bool {
        self.matches(&other.0)
    }
}

impl Eq for Token {}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// Greeting between two sides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    /// Address of the queue pair.
    pub endpoint: Endpoint,
    /// Regions the peer may reach, in the order that the protocol above defines; at most
    /// [`REGIONS_MAX`].
    pub regions: Vec<RemoteRegion>,
    /// Numbers of the protocol above (slots, slot length …); at most [`PARAMETERS_MAX`].
    pub parameters: Vec<u64>,
}

/// Bytes of magic, version and token, which begin every conversation.
pub const HEAD_BYTES: usize = 8 + 4 + 32;
const COUNTS_BYTES: usize = 2;
/// Encoded length of every [`Hello`]: a fixed length leaves nothing to negotiate.
pub const HELLO_BYTES: usize =
    HEAD_BYTES + Endpoint::BYTES + COUNTS_BYTES + REGIONS_MAX * 20 + PARAMETERS_MAX * 8;

/// The beginning of a conversation: magic, version and token.
pub fn head(token: &Token) -> [u8; HEAD_BYTES] {
    let mut bytes = [0; HEAD_BYTES];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    bytes[12..].copy_from_slice(token.bytes());
    bytes
}

/// Checks how a peer, who may be a stranger, begins a conversation.
pub fn check_head(bytes: &[u8; HEAD_BYTES], token: &Token) -> Result<(), SetupError> {
    let mut fields = Fields(bytes);
    if fields.take()? != MAGIC {
        return Err(SetupError::Magic);
    }
    let theirs = u32::from_le_bytes(fields.take()?);
    if theirs != VERSION {
        return Err(SetupError::Version { theirs, ours: VERSION });
    }
    if !token.matches(&fields.take()?) {
        return Err(SetupError::Token);
    }
    Ok(())
}

impl Hello {
    /// Encodes with the job's token.
    pub fn encode(&self, token: &Token) -> Result<[u8; HELLO_BYTES], SetupError> {
        if self.regions.len() > REGIONS_MAX || self.parameters.len() > PARAMETERS_MAX {
            return Err(SetupError::Field { what: "too many regions or parameters" });
        }
        let mut message = Vec::with_capacity(HELLO_BYTES);
        message.extend_from_slice(&head(token));
        message.extend_from_slice(&self.endpoint.encode());
        message.extend_from_slice(&[self.regions.len() as u8, self.parameters.len() as u8]);
        for i in 0..REGIONS_MAX {
            let region = self.regions.get(i).copied().unwrap_or_default();
            message.extend_from_slice(&region.address.to_le_bytes());
            message.extend_from_slice(&region.bytes.to_le_bytes());
            message.extend_from_slice(&region.key.to_le_bytes());
        }
        for i in 0..PARAMETERS_MAX {
            let parameter = self.parameters.get(i).copied().unwrap_or_default();
            message.extend_from_slice(&parameter.to_le_bytes());
        }
        let mut bytes = [0; HELLO_BYTES];
        bytes.copy_from_slice(&message);
        Ok(bytes)
    }

    /// Decodes a message of a peer that may be anybody.
    pub fn decode(message: &[u8; HELLO_BYTES], token: &Token) -> Result<Hello, SetupError> {
        let mut fields = Fields(message);
        check_head(&fields.take()?, token)?;
        let endpoint = Endpoint::decode(&fields.take()?)
            .map_err(|_| SetupError::Field { what: "no such provider is known here" })?;
        let [regions, parameters] = fields.take()?;
        if usize::from(regions) > REGIONS_MAX || usize::from(parameters) > PARAMETERS_MAX {
            return Err(SetupError::Field { what: "too many regions or parameters" });
        }
        let mut hello = Hello { endpoint, regions: Vec::new(), parameters: Vec::new() };
        for i in 0..REGIONS_MAX {
            let address = u64::from_le_bytes(fields.take()?);
            let bytes = u64::from_le_bytes(fields.take()?);
            let key = u32::from_le_bytes(fields.take()?);
            if i < usize::from(regions) {
                if address.checked_add(bytes).is_none() {
                    return Err(SetupError::Field { what: "a region beyond the address space" });
                }
                hello.regions.push(RemoteRegion { address, bytes, key });
            }
        }
        for i in 0..PARAMETERS_MAX {
            let parameter = u64::from_le_bytes(fields.take()?);
            if i < usize::from(parameters) {
                hello.parameters.push(parameter);
            }
        }
        Ok(hello)
    }
}

/// Rest of a message.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], SetupError> {
        let (head, rest) = self
            .0
            .split_first_chunk::<N>()
            .ok_or(SetupError::Field { what: "it ends too early" })?;
        self.0 = rest;
        Ok(*head)
    }
}

/// The calling side: sends `ours` and returns the peer's answer. Set time-outs on the stream
/// before.
pub fn call<S: Read + Write>(
    stream: &mut S,
    token: &Token,
    ours: &Hello,
) -> Result<Hello, SetupError> {
    stream.write_all(&ours.encode(token)?)?;
    receive(stream, token)
}

/// The called side: checks the caller's message, and only then answers with `ours(&theirs)`. Set
/// time-outs on the stream before.
pub fn answer<S: Read + Write>(
    stream: &mut S,
    token: &Token,
    ours: impl FnOnce(&Hello) -> Result<Hello, Error>,
) -> Result<Hello, Error> {
    let theirs = receive(stream, token)?;
    let ours = ours(&theirs)?;
    stream.write_all(&ours.encode(token)?).map_err(SetupError::from)?;
    Ok(theirs)
}

fn receive<S: Read>(stream: &mut S, token: &Token) -> Result<Hello, SetupError> {
    let mut message = [0; HELLO_BYTES];
    stream.read_exact(&mut message)?;
    Hello::decode(&message, token)
}

/// Fuzz target: any bytes are decoded or refused, and what is decoded encodes to the same fields.
///
/// # Panics
/// If a decoded message is not what its encoding decodes to.
pub fn fuzz(data: &[u8]) {
    let token = Token::new([7; 32]);
    let mut message = [0; HELLO_BYTES];
    let bytes = data.len().min(HELLO_BYTES);
    message[..bytes].copy_from_slice(&data[..bytes]);
    for right_head in [false, true] {
        if right_head {
            message[..HEAD_BYTES].copy_from_slice(&head(&token));
        }
        if let Ok(hello) = Hello::decode(&message, &token) {
            let again = hello.encode(&token).expect("what was decoded is within limits");
            assert_eq!(Hello::decode(&again, &token).expect("our own message"), hello);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::endpoint::{ENDPOINT_DETAIL_BYTES, Provider};

    fn hello() -> Hello {
        Hello {
            endpoint: Endpoint { provider: Provider::Shm, detail: [3; ENDPOINT_DETAIL_BYTES] },
            regions: vec![RemoteRegion { address: 4096, bytes: 8192, key: 9 }],
            parameters: vec![8, 65536],
        }
    }

    #[test]
    fn both_sides_learn_of_each_other() {
        let (mut a, mut b) = UnixStream::pair().unwrap();
        let token = Token::random().unwrap();
        let mut other = hello();
        other.parameters = vec![1];
        let answer_with = other.clone();
        let called = std::thread::spawn(move || answer(&mut b, &token, |_| Ok(answer_with)));
        assert_eq!(call(&mut a, &token, &hello()).unwrap(), other);
        assert_eq!(called.join().unwrap().unwrap(), hello());
    }

    #[test]
    fn strangers_are_refused_and_told_nothing() {
        let (token, other) = (Token::new([1; 32]), Token::new([2; 32]));
        let (mut a, mut b) = UnixStream::pair().unwrap();
        let called = std::thread::spawn(move || answer(&mut b, &token, |_| Ok(hello())));
        let error = call(&mut a, &other, &hello()).unwrap_err();
        assert!(matches!(error, SetupError::Stream(_)), "{error}");
        let error = called.join().unwrap().unwrap_err();
        assert!(matches!(error, Error::Setup(SetupError::Token)), "{error}");
    }

    #[test]
    fn a_message_with_one_wrong_field_is_refused() {
        let token = Token::new([1; 32]);
        let good = hello().encode(&token).unwrap();
        let refused = |at: usize, value: u8| {
            let mut message = good;
            message[at] = value;
            Hello::decode(&message, &token).unwrap_err()
        };
        assert!(matches!(refused(0, b'X'), SetupError::Magic));
        assert!(matches!(refused(8, 2), SetupError::Version { theirs: 2, .. }));
        assert!(matches!(refused(12, 0), SetupError::Token));
        assert!(matches!(refused(43, 0), SetupError::Token));
        assert!(matches!(refused(HEAD_BYTES, 99), SetupError::Field { .. }));
        assert!(matches!(refused(HEAD_BYTES + 64, 99), SetupError::Field { .. }));
        let region = HEAD_BYTES + 64 + 2;
        let mut message = good;
        message[region..region + 16].fill(0xff);
        assert!(matches!(Hello::decode(&message, &token), Err(SetupError::Field { .. })));
    }

    #[test]
    fn a_short_message_is_an_error() {
        let (mut a, mut b) = UnixStream::pair().unwrap();
        a.write_all(&MAGIC).unwrap();
        drop(a);
        let error = receive(&mut b, &Token::new([0; 32])).unwrap_err();
        assert!(matches!(error, SetupError::Stream(_)), "{error}");
    }

    #[test]
    fn random_messages_do_no_harm() {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        for _ in 0..20_000 {
            let mut data = [0_u8; HELLO_BYTES];
            for chunk in data.chunks_mut(8) {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                let word = (state ^ (state >> 33)).to_le_bytes();
                chunk.copy_from_slice(&word[..chunk.len()]);
            }
            fuzz(&data);
            data[HEAD_BYTES] = (data[HEAD_BYTES] % 4) + 1;
            data[HEAD_BYTES + 64] %= 9;
            data[HEAD_BYTES + 65] %= 9;
            fuzz(&data);
        }
    }
}
