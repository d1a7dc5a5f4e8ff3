//! The path of a table: bodies that are sent to it, until they are handed on.
//!
//! A body is decoded before it is accepted, piece by piece. Decoded pieces are kept as long as they
//! take no more than the body itself and the room that is left for bodies. The rest of a body is
//! decoded again when it is handed on: a body of empty objects takes a thousand times its length.
//!
//! With a journal a decoded body is forgotten once it is durable there, and its split reads it
//! again.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use millstream_contract::table::{Chunk, Decoded};
use millstream_contract::wording::counted;
use millstream_contract::{Result, decoding};
use millstream_store::journal::{Appended, Journal, Sequence};

use super::body::unpack;
use super::message::Answer;
use super::request::ContentEncoding;
use crate::input::Name;
use crate::records::{Arriving, RecordChunk, Wanted};

/// Bodies for a table.
#[derive(Debug, Clone)]
pub(super) struct Served {
    pub(super) name: Name,
    /// Where they are sent to.
    pub(super) path: Arc<str>,
    pub(super) wanted: Wanted,
    /// Where accepted bodies go; otherwise they wait in memory.
    pub(super) journal: Option<Arc<Journal>>,
    /// Bytes of a body at most, as it is sent and unpacked.
    pub(super) body_bytes_max: u64,
    /// Bytes of bodies at most that are being received, or wait.
    pub(super) waiting_bytes_max: u64,
    /// Bytes that a piece of a body may take while it is decoded.
    pub(super) decoding_bytes_max: u64,
}

/// Bodies for a table, and those of them that have come.
pub(super) struct Route {
    pub(super) served: Served,
    state: Mutex<State>,
    /// One body at a time is unpacked or decoded: each takes memory beside its own.
    decoding: Mutex<()>,
}

#[derive(Default)]
struct State {
    accepted: VecDeque<Accepted>,
    /// To be called when something comes, or when nothing more does.
    waker: Option<Waker>,
    /// Nothing more is accepted.
    draining: bool,
    /// The table's split is gone.
    gone: bool,
    /// Bodies received.
    bodies: u64,
    /// Senders of accepted bodies that have not been answered yet.
    unanswered: usize,
    /// Bytes of bodies that are being received, or wait.
    waiting: u64,
}

/// Something to hand on.
pub(super) enum Next {
    Accepted(Box<Accepted>),
    /// Nothing now.
    Nothing,
    /// Nothing any more: it has been drained.
    Ended,
}

/// An accepted body whose sender is being answered.
pub(super) struct Answering<'a>(&'a Route);

impl Drop for Answering<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.unanswered -= 1;
        let waker = if state.unanswered == 0 { state.waker.take() } else { None };
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// Records of a body.
pub(super) struct Accepted {
    piece: Piece,
    /// Bytes of the body that they stand for.
    bytes: usize,
    room: Arc<Room>,
}

enum Piece {
    Decoded(Decoded),
    /// Known to have no malformed record.
    Raw(RecordChunk),
}

/// The records of a body: pieces, each with its bytes.
#[derive(Default)]
struct Records {
    pieces: Vec<(Piece, usize)>,
    count: u64,
    left_out: u64,
}

impl Chunk for Accepted {
    fn bytes(&self) -> usize {
        self.bytes
    }

    fn decode(self: Box<Self>) -> Result<arrow::array::RecordBatch> {
        Ok(self.decode_reporting()?.batch)
    }

    fn decode_reporting(self: Box<Self>) -> Result<Decoded> {
        let Accepted { piece, room, .. } = *self;
        let decoded = match piece {
            Piece::Decoded(decoded) => decoded,
            Piece::Raw(chunk) => Box::new(chunk).decode_reporting()?,
        };
        // Other bodies may come.
        drop(room);
        Ok(decoded)
    }
}

/// The room that a body takes, until all its records have been handed on.
pub(super) struct Room {
    route: Arc<Route>,
    bytes: u64,
}

impl Room {
    /// Makes room for more.
    pub(super) fn add(&mut self, bytes: u64) -> std::result::Result<(), Answer> {
        let max = self.route.served.waiting_bytes_max;
        let mut state = self.route.lock();
        // A body that is alone may be as large as a body may be, as it is sent and unpacked.
        let waiting = state.waiting.checked_add(bytes);
        let fits = |waiting: &u64| *waiting <= max || *waiting == self.bytes + bytes;
        let Some(waiting) = waiting.filter(fits) else {
            return Err(Answer::new(429, "too much waits to be taken in"));
        };
        state.waiting = waiting;
        self.bytes += bytes;
        Ok(())
    }

    /// Makes room for decoded records, if half of all room stays free; whether it did.
    fn keep(&mut self, bytes: u64) -> bool {
        let max = self.route.served.waiting_bytes_max / 2;
        let mut state = self.route.lock();
        let fits = state.waiting.saturating_add(bytes) <= max;
        if fits {
            state.waiting += bytes;
            self.bytes += bytes;
        }
        fits
    }

    /// Gives back what is more than so many bytes.
    fn shrink(&mut self, bytes: u64) {
        let spare = self.bytes.saturating_sub(bytes);
        self.bytes -= spare;
        let mut state = self.route.lock();
        state.waiting = state.waiting.saturating_sub(spare);
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.shrink(0);
    }
}

impl Route {
    pub(super) fn new(served: Served) -> Route {
        Route { served, state: Mutex::default(), decoding: Mutex::new(()) }
    }

    /// A panic elsewhere cannot leave the state half changed, so a poisoned lock is as good.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Room for a body, none yet.
    pub(super) fn room(self: &Arc<Self>) -> Room {
        Room { route: self.clone(), bytes: 0 }
    }

    /// Accepts nothing more.
    pub(super) fn drain(&self) {
        self.lock().draining = true;
    }

    /// Leaves what has been accepted.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        state.gone = true;
        let accepted = std::mem::take(&mut state.accepted);
        drop(state);
        // Each gives its room back, for which it needs the lock.
        drop(accepted);
    }

    /// Why no body is accepted any more, if that is so.
    pub(super) fn refusal(&self) -> Option<Answer> {
        refusal(&self.lock())
    }

    /// What has been accepted first. If there is nothing, `waker` is called when there is, or when
    /// nothing more will be.
    pub(super) fn next(&self, waker: &Waker) -> Next {
        let mut state = self.lock();
        if let Some(accepted) = state.accepted.pop_front() {
            return Next::Accepted(Box::new(accepted));
        }
        // Once the split has ended the server may go, and with it what is still to be answered.
        if state.draining && state.unanswered == 0 {
            return Next::Ended;
        }
        state.waker = Some(waker.clone());
        Next::Nothing
    }

    /// Hands on the records of a body, all or none. What comes with the answer, if they are
    /// accepted, is to be kept until that has been sent.
    pub(super) fn take(
        &self,
        body: Vec<u8>,
        packing: Option<ContentEncoding>,
        sequence: Option<(String, u64)>,
        room: Room,
    ) -> (Answer, Option<Answering<'_>>) {
        match self.accept(body, packing, sequence, room) {
            Ok((accepted, answering)) => (accepted, Some(answering)),
            Err(refused) => (refused, None),
        }
    }

    fn accept(
        &self,
        body: Vec<u8>,
        packing: Option<ContentEncoding>,
        sequence: Option<(String, u64)>,
        mut room: Room,
    ) -> std::result::Result<(Answer, Answering<'_>), Answer> {
        let mut body = match packing {
            None => body,
            Some(packing) => {
                let _alone = self.decoding.lock().unwrap_or_else(PoisonError::into_inner);
                unpack(&body, packing, self.served.body_bytes_max, |bytes| room.add(bytes))?
            }
        };
        room.shrink(body.len() as u64);
        let name = self.prepare(&mut body)?;
        let kept = match &self.served.journal {
            Some(journal) => {
                room.add(body.len() as u64)?;
                Some((journal, body.clone()))
            }
            None => None,
        };
        let Records { mut pieces, count, left_out } = self.decode(name, body, &mut room)?;
        if kept.is_some() {
            // They are read from the journal, and decoded again.
            pieces.clear();
        }
        let room = Arc::new(room);
        let accepted = |(piece, bytes)| Accepted { piece, bytes, room: room.clone() };
        let mut state = self.lock();
        if let Some(refusal) = refusal(&state) {
            return Err(refusal);
        }
        state.unanswered += 1;
        let answering = Answering(self);
        state.accepted.extend(pieces.into_iter().map(accepted));
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
        let mut text = format!("{} accepted", counted(count, "record"));
        if left_out > 0 {
            text += &format!(", {left_out} left out");
        }
        if let Some((journal, body)) = kept {
            let sequence = sequence.as_ref();
            let sequence =
                sequence.map(|(producer, number)| Sequence { producer, number: *number });
            match journal.append(Some(&body), sequence) {
                Ok(Appended::Durable) => {}
                Ok(Appended::Before) => text = "the body was accepted before".into(),
                Err(error) => return Err(Answer::new(503, error.to_string())),
            }
        }
        Ok((Answer::new(202, text), answering))
    }

    /// The name of a body that is not packed, whose records stand alone from now on.
    fn prepare(&self, body: &mut [u8]) -> std::result::Result<Name, Answer> {
        let number = {
            let mut state = self.lock();
            state.bodies += 1;
            state.bodies
        };
        let name = format!("{}, body {number}", self.served.name);
        if body.starts_with(&[0x1f, 0x8b]) {
            return Err(Answer::new(
                415,
                "the body is packed: say so with 'Content-Encoding: gzip'",
            ));
        }
        let unwrapped = self.served.wanted.format.unwrap_array(body);
        unwrapped.map_err(|why| Answer::new(400, format!("{name}: {why}")))?;
        Ok(name.into())
    }

    /// The records of a body.
    fn decode(
        &self,
        name: Name,
        body: Vec<u8>,
        room: &mut Room,
    ) -> std::result::Result<Records, Answer> {
        let bad = |message: String| Answer::new(400, message);
        let mut left = body.len();
        let mut arriving = Arriving::new(name, self.served.wanted.clone());
        *arriving.buffer() = body;
        let mut records = Records::default();
        loop {
            let _alone = self.decoding.lock().unwrap_or_else(PoisonError::into_inner);
            let chunk = arriving.records(true).map_err(|error| bad(error.to_string()))?;
            let Some(chunk) = chunk else { return Ok(records) };
            let decoded = decoding::within(self.served.decoding_bytes_max, || {
                let decoded = Box::new(chunk.clone()).decode_reporting();
                let status = if decoding::exceeded().is_some() { 413 } else { 400 };
                decoded.map_err(|error| Answer::new(status, error.to_string()))
            })?;
            records.count += decoded.batch.num_rows() as u64;
            records.left_out += decoded.left_out;
            let bytes = chunk.bytes();
            let decoded_bytes = decoded.batch.get_array_memory_size();
            let more = decoded_bytes.saturating_sub(left) as u64;
            let piece = match more == 0 || room.keep(more) {
                true => Piece::Decoded(decoded),
                false => Piece::Raw(chunk),
            };
            left -= decoded_bytes.min(left);
            records.pieces.push((piece, bytes));
        }
    }
}

/// The refusal of every body, where the table takes no more.
fn refusal(state: &State) -> Option<Answer> {
    match (state.gone, state.draining) {
        (true, _) => Some(Answer::new(503, "the job has ended")),
        (_, true) => Some(Answer::new(503, "the job is being drained: it takes no more records")),
        _ => None,
    }
}
