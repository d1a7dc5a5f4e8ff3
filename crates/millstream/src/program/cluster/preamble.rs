//! The preamble: the first bytes on a control connection. It tells who calls, and whether the
//! caller belongs to this job.
//!
//! A process that joins sends 48 bytes: magic number, version, the job's token, its number. The
//! coordinator answers with magic number, version and token, and only if the caller's are right, so
//! that strangers learn nothing.

use std::io;
use std::time::{Duration, Instant};

use millstream_fabric::setup::Token;

use super::transport::Stream;

/// First bytes from a process that joins.
const CALL: [u8; 8] = *b"MSCALLER";
/// First bytes of the answer.
const ANSWER: [u8; 8] = *b"MSANSWER";
/// Version of all messages behind the preamble. The preamble itself is the same in all versions.
pub const VERSION: u32 = 1;

const HEAD_BYTES: usize = 8 + 4 + 32;
/// Bytes that a process sends to join.
pub const CALL_BYTES: usize = HEAD_BYTES + 4;
/// Bytes of the answer.
pub const ANSWER_BYTES: usize = HEAD_BYTES;

/// Callers that process 0 listens to at once.
pub(super) const CALLERS_MAX: usize = 64;

/// Why somebody was not let in.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The stream ended or failed before the preamble was complete.
    #[error("it said too little: {0}")]
    Stream(#[from] io::Error),
    /// The stream ended before its first byte.
    #[error("it said nothing")]
    Nothing,
    /// There are too many callers to listen to one more.
    #[error("{CALLERS_MAX} others are being listened to")]
    Crowd,
    /// Something else is talking to this port.
    #[error("it does not speak Millstream's control protocol")]
    Magic,
    /// Another version of Millstream.
    #[error("it speaks version {theirs} of the control protocol, this process version {VERSION}")]
    Version {
        /// The version it speaks.
        theirs: u32,
        /// The number that it gave, if it may join and holds the token.
        process: Option<usize>,
    },
    /// The process does not belong to this job.
    #[error("it does not hold this job's token")]
    Token,
    /// There is no such process.
    #[error("it says that it is process {process}, and there are {processes}")]
    Number {
        /// The number it gave.
        process: usize,
        /// Processes of the job.
        processes: usize,
    },
    /// The process is here already: this is a second process, or an intruder repeats an overheard
    /// call.
    #[error("process {process} has joined already")]
    Joined {
        /// The number it gave.
        process: usize,
    },
}

/// Bytes that process `process` sends to join.
pub fn call(token: &Token, process: u32) -> [u8; CALL_BYTES] {
    let mut bytes = [0; CALL_BYTES];
    bytes[..HEAD_BYTES].copy_from_slice(&head(CALL, token));
    bytes[HEAD_BYTES..].copy_from_slice(&process.to_le_bytes());
    bytes
}

/// The number of the process that sent this, if it may join a job of `processes` processes.
pub fn decode_call(
    bytes: &[u8; CALL_BYTES],
    token: &Token,
    processes: usize,
) -> Result<usize, Refusal> {
    let [head @ .., a, b, c, d] = bytes;
    let process = u32::from_le_bytes([*a, *b, *c, *d]) as usize;
    let is_number = (1..processes).contains(&process);
    match check_head(head, CALL, token) {
        Ok(()) if is_number => Ok(process),
        Ok(()) => Err(Refusal::Number { process, processes }),
        Err(Refusal::Version { theirs, .. }) if is_number && holds_token(head, token) => {
            Err(Refusal::Version { theirs, process: Some(process) })
        }
        Err(refusal) => Err(refusal),
    }
}

/// The answer to who may join.
pub fn answer(token: &Token) -> [u8; ANSWER_BYTES] {
    head(ANSWER, token)
}

/// Whether this is the coordinator's answer.
pub fn decode_answer(bytes: &[u8; ANSWER_BYTES], token: &Token) -> Result<(), Refusal> {
    check_head(bytes, ANSWER, token)
}

fn head(magic: [u8; 8], token: &Token) -> [u8; HEAD_BYTES] {
    let mut bytes = [0; HEAD_BYTES];
    bytes[..8].copy_from_slice(&magic);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    bytes[12..].copy_from_slice(token.bytes());
    bytes
}

fn check_head(bytes: &[u8; HEAD_BYTES], magic: [u8; 8], token: &Token) -> Result<(), Refusal> {
    if bytes[..8] != magic {
        return Err(Refusal::Magic);
    }
    let theirs = u32::from_le_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]);
    if theirs != VERSION {
        return Err(Refusal::Version { theirs, process: None });
    }
    if holds_token(bytes, token) { Ok(()) } else { Err(Refusal::Token) }
}

fn holds_token(head: &[u8; HEAD_BYTES], token: &Token) -> bool {
    let mut presented = [0; 32];
    presented.copy_from_slice(&head[12..]);
    token.matches(&presented)
}

/// Reads exactly `N` bytes until `deadline`, however slowly they come.
fn read_until<const N: usize>(stream: &dyn Stream, deadline: Instant) -> Result<[u8; N], Refusal> {
    let mut bytes = [0; N];
    let mut read = 0;
    while read < N {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Refusal::Stream(io::ErrorKind::TimedOut.into()));
        }
        match stream.read(&mut bytes[read..], left) {
            Ok(0) if read == 0 => return Err(Refusal::Nothing),
            Ok(0) => return Err(Refusal::Stream(io::ErrorKind::UnexpectedEof.into())),
            Ok(more) => read += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(Refusal::Stream(io::ErrorKind::TimedOut.into()));
            }
            Err(error) if read == 0 && error.kind() == io::ErrorKind::ConnectionReset => {
                return Err(Refusal::Nothing);
            }
            Err(error) => return Err(Refusal::Stream(error)),
        }
    }
    Ok(bytes)
}

/// The called side: reads a preamble and returns the number of the process.
pub(super) fn receive_call(
    stream: &dyn Stream,
    token: &Token,
    processes: usize,
    patience: Duration,
) -> Result<usize, Refusal> {
    let bytes = read_until(stream, Instant::now() + patience)?;
    decode_call(&bytes, token, processes)
}

/// The joining side: says who it is and waits for the answer.
pub(super) fn join(
    stream: &dyn Stream,
    token: &Token,
    process: u32,
    patience: Duration,
) -> Result<(), Refusal> {
    stream.write(&call(token, process), patience)?;
    let bytes = read_until(stream, Instant::now() + patience)?;
    decode_answer(&bytes, token)
}

/// Fuzz target: of all bytes only the right ones are taken for a process that may join, or for
/// process 0. The token is 32 times the byte 7, the job's processes are four.
///
/// # Panics
/// If others are.
pub fn fuzz(data: &[u8]) {
    let token = Token::new([7; 32]);
    if let Some(bytes) = data.first_chunk::<CALL_BYTES>() {
        match decode_call(bytes, &token, 4) {
            Ok(process) => assert_eq!(*bytes, call(&token, process as u32)),
            Err(refusal) => assert!(!refusal.to_string().is_empty()),
        }
    }
    if let Some(bytes) = data.first_chunk::<ANSWER_BYTES>() {
        assert_eq!(decode_answer(bytes, &token).is_ok(), *bytes == answer(&token));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: [u8; 32] = [7; 32];

    #[test]
    fn one_wrong_byte_is_enough_to_be_refused() {
        let token = Token::new(TOKEN);
        let good = call(&token, 3);
        assert_eq!(decode_call(&good, &token, 4).unwrap(), 3);
        for at in 0..CALL_BYTES {
            let mut bytes = good;
            bytes[at] ^= 0x40;
            let refusal = decode_call(&bytes, &token, 4).unwrap_err();
            match at {
                0..8 => assert!(matches!(refusal, Refusal::Magic)),
                8..12 => assert!(matches!(refusal, Refusal::Version { process: Some(3), .. })),
                12..44 => assert!(matches!(refusal, Refusal::Token)),
                _ => assert!(matches!(refusal, Refusal::Number { .. })),
            }
        }
    }

    #[test]
    fn who_speaks_another_version_is_known_by_its_token_only() {
        let token = Token::new(TOKEN);
        let other_version = |token: &Token, process| {
            let mut bytes = call(token, process);
            bytes[8] ^= 2;
            bytes
        };
        for (holds, number, expected) in
            [(TOKEN, 3, Some(3)), (TOKEN, 4, None), (TOKEN, 0, None), ([8; 32], 3, None)]
        {
            let bytes = other_version(&Token::new(holds), number);
            let Err(Refusal::Version { theirs, process }) = decode_call(&bytes, &token, 4) else {
                panic!("it was not refused for its version");
            };
            assert_eq!((theirs, process), (VERSION ^ 2, expected));
        }
    }

    #[test]
    fn nobody_is_process_0_or_one_too_many() {
        let token = Token::new(TOKEN);
        for process in [0, 4, u32::MAX] {
            let refusal = decode_call(&call(&token, process), &token, 4).unwrap_err();
            assert!(matches!(refusal, Refusal::Number { processes: 4, .. }), "{refusal}");
        }
    }

    #[test]
    fn an_echo_is_no_answer() {
        let token = Token::new(TOKEN);
        let mut echo = [0; ANSWER_BYTES];
        echo.copy_from_slice(&call(&token, 1)[..ANSWER_BYTES]);
        assert!(matches!(decode_answer(&echo, &token), Err(Refusal::Magic)));
        decode_answer(&answer(&token), &token).unwrap();
        let other = decode_answer(&answer(&Token::new([8; 32])), &token);
        assert!(matches!(other, Err(Refusal::Token)));
    }
}
