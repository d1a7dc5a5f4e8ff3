//! Incoming messages from another process that are not part of a delta.

use millstream_flow::channel::Error as FlowError;

use super::port::{Inlet, Polled};
use super::wire::{Head, Kind, MORE};
use crate::error::Error;
use millstream_operators::operator::MergeTimes;

/// Where messages from one process come in.
pub(super) struct PostInlet {
    pub(super) inlet: Box<dyn Inlet>,
    /// The body of a message of several slots, so far.
    body: Vec<u8>,
    pub(super) ended: bool,
}

/// Content of an inlet.
pub(super) enum InletMessage {
    /// Of a message that takes several slots.
    Part,
    Whole(Head, Vec<u8>),
}

/// Why there is no message.
pub(super) enum Failed {
    Channel(FlowError),
    /// The message is invalid.
    Message(Error),
}

impl PostInlet {
    pub(super) fn new(inlet: Box<dyn Inlet>) -> PostInlet {
        PostInlet { inlet, body: Vec::new(), ended: false }
    }

    /// The next message or part of one.
    pub(super) fn next(&mut self) -> std::result::Result<Option<InletMessage>, Failed> {
        if self.ended {
            return Ok(None);
        }
        let PostInlet { inlet, body, .. } = self;
        let mut message = Ok(InletMessage::Part);
        let polled = inlet.try_receive(&mut |slot| {
            message = Head::decode(slot).map(|(head, part)| {
                body.extend_from_slice(part);
                match head.has(MORE) {
                    true => InletMessage::Part,
                    false => InletMessage::Whole(head, std::mem::take(body)),
                }
            });
        });
        match polled.map_err(Failed::Channel)? {
            Polled::Message => message.map(Some).map_err(Failed::Message),
            Polled::Empty => Ok(None),
            Polled::End => {
                self.ended = true;
                Ok(None)
            }
        }
    }
}

/// The head of a message that tells of a credit for a stage's delta, and of the time that merging
/// took.
pub(crate) fn credit(stage: usize, leader: usize, flags: u8, times: &MergeTimes) -> Head {
    let head = Head { stage: stage as u16, id: leader as u32, flags, ..Head::new(Kind::Credit) };
    let MergeTimes { rows, ns, passed_rows, passed_ns } = *times;
    Head { count: rows, number: ns, rows_of: passed_rows, watermark: passed_ns as i64, ..head }
}

/// The times of merging that a credit tells of.
pub(crate) fn merge_times(head: &Head) -> MergeTimes {
    let Head { count: rows, number: ns, rows_of: passed_rows, watermark, .. } = *head;
    MergeTimes { rows, ns, passed_rows, passed_ns: watermark as u64 }
}
