//! Messages between a [`RegistryClient`](crate::RegistryClient) and a
//! [`RegistryService`](crate::RegistryService).
//!
//! A conversation is one request and one answer on a connection of its own. The caller begins with
//! the head of [`millstream_fabric::setup`]: magic, version, the job's token. Then both send a
//! frame: its length in 4 bytes, and the encoded request or answer.

use std::io::{Read as _, Write};
use std::net::TcpStream;
use std::time::Duration;

use millstream_fabric::setup::{HELLO_BYTES, Hello, SetupError, Token};

use crate::declaration::Declaration;
use crate::error::{Error, Result};
use crate::registry::End;
use crate::thread::{Peer, Role, Thread};
use crate::wire::{Fields, Put, Read, malformed};

/// Longest frame: the set-up messages of 16,384 threads take 5.5 MB.
const FRAME_BYTES_MAX: usize = 16 << 20;

/// A call of the [`Registry`](crate::Registry) trait.
#[derive(Debug, Clone)]
pub(crate) enum Request {
    Publish(Box<Declaration>),
    LookUp(String, Duration),
    Join(String, End, Vec<Hello>),
    Peers(String, End, Duration),
    Withdraw(String),
}

/// Result of a call.
#[derive(Debug, Clone)]
pub(crate) enum Answer {
    Done,
    Declared(Box<Declaration>),
    Hellos(Vec<Hello>),
    Refused(Error),
}

fn put_end(to: &mut Vec<u8>, end: End) {
    to.push(end.role as u8);
    to.put_u32(end.index);
}

fn role(from: &mut Fields<'_>) -> Read<Role> {
    match from.u8()? {
        1 => Ok(Role::Source),
        2 => Ok(Role::Target),
        _ => malformed("no such end of a flow"),
    }
}

fn end(from: &mut Fields<'_>) -> Read<End> {
    Ok(End { role: role(from)?, index: from.u32()? })
}

fn put_time(to: &mut Vec<u8>, time: Duration) {
    to.put_u64(time.as_nanos().try_into().unwrap_or(u64::MAX));
}

fn time(from: &mut Fields<'_>) -> Read<Duration> {
    Ok(Duration::from_nanos(from.u64()?))
}

fn put_hellos(to: &mut Vec<u8>, hellos: &[Hello], token: &Token) -> Read<()> {
    to.put_u32(hellos.len() as u32);
    for hello in hellos {
        to.extend_from_slice(&hello.encode(token)?);
    }
    Ok(())
}

fn hellos(from: &mut Fields<'_>, token: &Token) -> Read<Vec<Hello>> {
    from.list(HELLO_BYTES, |from| Hello::decode(&from.array()?, token))
}

impl Request {
    pub(crate) fn encode(&self, token: &Token) -> Read<Vec<u8>> {
        let mut to = Vec::new();
        match self {
            Request::Publish(declaration) => {
                to.push(1);
                to.extend_from_slice(&declaration.encode());
            }
            Request::LookUp(flow, patience) => {
                to.push(2);
                to.put_text(flow);
                put_time(&mut to, *patience);
            }
            Request::Join(flow, end, hellos) => {
                to.push(3);
                to.put_text(flow);
                put_end(&mut to, *end);
                put_hellos(&mut to, hellos, token)?;
            }
            Request::Peers(flow, end, patience) => {
                to.push(4);
                to.put_text(flow);
                put_end(&mut to, *end);
                put_time(&mut to, *patience);
            }
            Request::Withdraw(flow) => {
                to.push(5);
                to.put_text(flow);
            }
        }
        Ok(to)
    }

    /// Decodes a message of a peer that holds the token.
    pub(crate) fn decode(bytes: &[u8], token: &Token) -> Read<Request> {
        let mut from = Fields(bytes);
        let request = match from.u8()? {
            1 => Request::Publish(Declaration::decode(&mut from)?.into()),
            2 => Request::LookUp(from.text()?, time(&mut from)?),
            3 => Request::Join(from.text()?, end(&mut from)?, hellos(&mut from, token)?),
            4 => Request::Peers(from.text()?, end(&mut from)?, time(&mut from)?),
            5 => Request::Withdraw(from.text()?),
            _ => return malformed("no such request"),
        };
        from.end()?;
        Ok(request)
    }
}

impl Answer {
    pub(crate) fn encode(&self, token: &Token) -> Read<Vec<u8>> {
        let mut to = Vec::new();
        match self {
            Answer::Done => to.push(0),
            Answer::Declared(declaration) => {
                to.push(1);
                to.extend_from_slice(&declaration.encode());
            }
            Answer::Hellos(hellos) => {
                to.push(2);
                put_hellos(&mut to, hellos, token)?;
            }
            Answer::Refused(Error::NameTaken { flow }) => {
                to.push(3);
                to.put_text(flow);
            }
            Answer::Refused(Error::NoFlow { flow, patience }) => {
                to.push(4);
                to.put_text(flow);
                put_time(&mut to, *patience);
            }
            Answer::Refused(Error::NotJoined { flow, missing, first, patience }) => {
                to.push(5);
                to.put_text(flow);
                to.put_u32(*missing);
                put_end(&mut to, End { role: first.role, index: first.index });
                to.put_u32(first.thread.node);
                to.put_u32(first.thread.id);
                put_time(&mut to, *patience);
            }
            Answer::Refused(Error::Registry { why }) => {
                to.push(6);
                to.put_text(why);
            }
            Answer::Refused(other) => {
                to.push(6);
                to.put_text(&other.to_string());
            }
        }
        Ok(to)
    }

    /// Decodes a message of a peer that holds the token.
    pub(crate) fn decode(bytes: &[u8], token: &Token) -> Read<Answer> {
        let mut from = Fields(bytes);
        let answer = match from.u8()? {
            0 => Answer::Done,
            1 => Answer::Declared(Declaration::decode(&mut from)?.into()),
            2 => Answer::Hellos(hellos(&mut from, token)?),
            3 => Answer::Refused(Error::NameTaken { flow: from.text()? }),
            4 => {
                let flow = from.text()?;
                Answer::Refused(Error::NoFlow { flow, patience: time(&mut from)? })
            }
            5 => {
                let (flow, missing, End { role, index }) =
                    (from.text()?, from.u32()?, end(&mut from)?);
                let thread = Thread::new(from.u32()?, from.u32()?);
                let (first, patience) = (Peer { role, index, thread }, time(&mut from)?);
                Answer::Refused(Error::NotJoined { flow, missing, first, patience })
            }
            6 => Answer::Refused(Error::Registry { why: from.text()? }),
            _ => return malformed("no such answer"),
        };
        from.end()?;
        Ok(answer)
    }
}

/// Sends a frame.
pub(crate) fn send(stream: &mut TcpStream, bytes: &[u8]) -> Result<()> {
    if bytes.len() > FRAME_BYTES_MAX {
        let why = format!("a message of {} bytes, at most 16 MiB", bytes.len());
        return Err(Error::Registry { why });
    }
    let mut frame = Vec::with_capacity(4 + bytes.len());
    frame.put_u32(bytes.len() as u32);
    frame.extend_from_slice(bytes);
    stream.write_all(&frame).map_err(SetupError::from)?;
    Ok(())
}

/// Receives a frame.
pub(crate) fn receive(stream: &mut TcpStream) -> Result<Vec<u8>> {
    let mut length = [0; 4];
    stream.read_exact(&mut length).map_err(SetupError::from)?;
    let length = u32::from_le_bytes(length) as usize;
    if length > FRAME_BYTES_MAX {
        return Err(Error::Registry {
            why: format!("a message of {length} bytes, at most 16 MiB"),
        });
    }
    // As much memory as arrives, not as much as was promised.
    let mut bytes = Vec::new();
    let got = stream.take(length as u64).read_to_end(&mut bytes).map_err(SetupError::from)?;
    if got < length {
        return Err(Error::Registry { why: "a message ends too early".into() });
    }
    Ok(bytes)
}

/// Fuzz target: any bytes are decoded or refused, and a decoded message encodes to itself.
///
/// # Panics
/// If a decoded message encodes to other bytes than it was decoded from.
pub fn fuzz(data: &[u8]) {
    let token = Token::new([7; 32]);
    if let Ok(request) = Request::decode(data, &token) {
        let again = request.encode(&token).expect("a decoded request is within limits");
        let second = Request::decode(&again, &token).expect("our own message");
        assert_eq!(second.encode(&token).expect("within limits"), again);
    }
    if let Ok(answer) = Answer::decode(data, &token) {
        let again = answer.encode(&token).expect("a decoded answer is within limits");
        let second = Answer::decode(&again, &token).expect("our own message");
        assert_eq!(second.encode(&token).expect("within limits"), again);
    }
}

#[cfg(test)]
mod tests {
    use millstream_fabric::{ENDPOINT_DETAIL_BYTES, Endpoint, Provider};

    use super::*;
    use crate::declaration::FlowKind;
    use crate::options::{Detection, Latency, OnLoss, Route};
    use crate::schema::Schema;

    fn declaration() -> Declaration {
        let mut declaration = Declaration::new("f", FlowKind::Replicate);
        declaration.sources = vec![Thread::new(0, 1), Thread::new(1, 1)];
        declaration.targets = vec![Thread::new(0, 2)];
        declaration.schema = Schema::new().u32("a").u64("b").bytes::<3>("c");
        declaration.route(Route::Key("b"));
        declaration.optimise = Latency { segments: 7 }.into();
        declaration.detection = Detection::Checksum;
        declaration.on_loss = OnLoss::Drop;
        declaration
    }

    fn hello() -> Hello {
        let endpoint = Endpoint { provider: Provider::Shm, detail: [3; ENDPOINT_DETAIL_BYTES] };
        Hello { endpoint, regions: Vec::new(), parameters: vec![1, 2] }
    }

    fn messages(token: &Token) -> Vec<Vec<u8>> {
        let end = End { role: Role::Target, index: 3 };
        let requests = [
            Request::Publish(declaration().into()),
            Request::LookUp("f".into(), Duration::from_millis(3)),
            Request::Join("f".into(), end, vec![hello(), hello()]),
            Request::Peers("f".into(), end, Duration::ZERO),
            Request::Withdraw("f".into()),
        ];
        let first = Peer { role: Role::Source, index: 1, thread: Thread::new(4, 5) };
        let (flow, patience) = ("f".to_owned(), Duration::from_secs(1));
        let refusals = [
            Error::NameTaken { flow: flow.clone() },
            Error::NoFlow { flow: flow.clone(), patience },
            Error::NotJoined { flow, missing: 2, first, patience },
            Error::Registry { why: "so".into() },
        ];
        let mut answers = vec![
            Answer::Done,
            Answer::Declared(declaration().into()),
            Answer::Hellos(vec![hello()]),
        ];
        answers.extend(refusals.map(Answer::Refused));
        let requests = requests.iter().map(|one| one.encode(token).unwrap());
        requests.chain(answers.iter().map(|one| one.encode(token).unwrap())).collect()
    }

    #[test]
    fn a_declaration_survives_the_wire() {
        let bytes = declaration().encode();
        let decoded = Declaration::decode(&mut Fields(&bytes)).unwrap();
        assert_eq!(decoded.encode(), bytes);
        assert_eq!(decoded.fingerprint(), declaration().fingerprint());
        assert_eq!(decoded.schema, declaration().schema);
    }

    #[test]
    fn a_refusal_keeps_its_type() {
        let token = Token::new([7; 32]);
        let refused = Answer::Refused(Error::NameTaken { flow: "f".into() });
        let bytes = refused.encode(&token).unwrap();
        let Ok(Answer::Refused(Error::NameTaken { flow })) = Answer::decode(&bytes, &token) else {
            panic!("another answer");
        };
        assert_eq!(flow, "f");
    }

    /// Each message cut short, changed in one byte, and random messages.
    #[test]
    fn damaged_messages_do_no_harm() {
        let token = Token::new([7; 32]);
        let mut state = 1_u64;
        for message in messages(&token) {
            assert!(
                Request::decode(&message, &token).is_ok()
                    || Answer::decode(&message, &token).is_ok()
            );
            for end in 0..message.len() {
                fuzz(&message[..end]);
            }
            for at in 0..message.len() {
                for _ in 0..8 {
                    state = state.wrapping_mul(6364136223846793005).wrapping_add(1);
                    let mut damaged = message.clone();
                    damaged[at] = (state >> 56) as u8;
                    fuzz(&damaged);
                }
            }
        }
    }
}
