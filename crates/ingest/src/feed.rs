//! A ring as the job reads it: segments become frames, frames become messages of Arrow IPC.
//!
//! Bytes of a segment are copied once, out of memory that the producer can write, before anything
//! in them is believed.

use std::net::TcpStream;
use std::task::Waker;

use bytes::Bytes;
use millstream_connect::ArrowMessages;
use millstream_dfi::Consumed;

use crate::fabric::{Inflow, Published};
use crate::ring::{Looked, Ring};
use crate::slots::Sender;
use crate::wire::{self, Answer, Frame, HEAD_BYTES};

/// In front of each message of an Arrow stream, then the length of its metadata.
const CONTINUATION: u32 = u32::MAX;

/// A ring, and the producer in its slot.
pub(crate) struct Feed {
    inflow: Box<dyn Inflow>,
    frames: Frames,
    messages: ArrowMessages,
    /// The message of the schema, which the producer has sent before.
    schema: Bytes,
    sender: Option<Sender>,
    control: TcpStream,
    place: String,
    /// The name of the flow is in use.
    _flow: Published,
}

impl Feed {
    pub(crate) fn new(
        (inflow, flow): (Box<dyn Inflow>, Published),
        (place, frame_bytes_max): (String, u64),
        (messages, schema): (ArrowMessages, Bytes),
        (sender, control): (Sender, TcpStream),
    ) -> Feed {
        let frames = Frames::new(frame_bytes_max);
        Feed { inflow, frames, messages, schema, sender: Some(sender), control, place, _flow: flow }
    }

    fn take(&mut self) -> Result<Looked, String> {
        let Some(sender) = &mut self.sender else { return Ok(Looked::Gone) };
        sender.has_room(Waker::noop()).map_err(|why| why.to_string())?;
        let batch = match self.inflow.look().map_err(|error| error.to_string())? {
            Consumed::Batch(batch) => batch,
            // Only ordered flows have gaps.
            Consumed::Empty | Consumed::Gap(_) => return Ok(Looked::Nothing),
            Consumed::End => {
                let rows = sender.rows();
                if self.frames.is_amid() {
                    return Err(format!("{}: the stream ends amid a frame", self.place));
                }
                self.sender.take().into_iter().for_each(Sender::end);
                // The producer may be gone.
                let _ = wire::answer(&mut self.control, &Answer::Taken(rows));
                return Ok(Looked::Gone);
            }
        };
        let mut bytes = batch.bytes();
        while let Some(part) =
            self.frames.take(&mut bytes).map_err(|why| format!("{}: {why}", self.place))?
        {
            let before = self.messages.rows();
            let (chunks, watermark) = match part {
                Part::Watermark(us) => (Vec::new(), Some(us)),
                Part::Arrow(bytes) => {
                    let mut chunks = Vec::new();
                    for (metadata, body) in
                        split(&bytes).map_err(|why| format!("{}: {why}", self.place))?
                    {
                        if !is_schema(&metadata, &self.schema) {
                            let taken = self.messages.take(metadata, body);
                            chunks.extend(taken.map_err(|error| error.to_string())?);
                        }
                    }
                    (chunks, None)
                }
            };
            let rows = self.messages.rows() - before;
            sender.send(chunks, rows, watermark).map_err(|why| why.to_string())?;
        }
        Ok(Looked::Some)
    }
}

impl Ring for Feed {
    fn look(&mut self) -> Looked {
        match self.take() {
            Ok(looked) => looked,
            Err(why) => {
                self.refuse(&why);
                Looked::Gone
            }
        }
    }

    fn refuse(&mut self, why: &str) {
        if let Some(sender) = self.sender.take() {
            let rows = sender.rows();
            let why = format!("{why} (records taken before: {rows})");
            let _ = wire::answer(&mut self.control, &Answer::Refused(why));
        }
    }
}

/// A part of the stream.
#[derive(Debug, PartialEq)]
enum Part {
    Arrow(Bytes),
    Watermark(i64),
}

/// Frames that are put together from segments.
struct Frames {
    bytes_max: u64,
    head: Vec<u8>,
    /// The frame that is being received, and its length.
    arrow: Option<(Vec<u8>, usize)>,
}

impl Frames {
    fn new(bytes_max: u64) -> Frames {
        Frames { bytes_max, head: Vec::with_capacity(HEAD_BYTES), arrow: None }
    }

    /// Whether a frame has begun and has not ended.
    fn is_amid(&self) -> bool {
        self.arrow.is_some() || !self.head.is_empty()
    }

    /// Takes bytes up to the end of the next frame; `None` once all bytes have been taken.
    fn take(&mut self, bytes: &mut &[u8]) -> Result<Option<Part>, String> {
        loop {
            if let Some((frame, length)) = &mut self.arrow {
                let part;
                (part, *bytes) = bytes.split_at((*length - frame.len()).min(bytes.len()));
                frame.extend_from_slice(part);
                if frame.len() < *length {
                    return Ok(None);
                }
                let (frame, _) = self.arrow.take().unwrap_or_default();
                return Ok(Some(Part::Arrow(frame.into())));
            }
            let part;
            (part, *bytes) = bytes.split_at((HEAD_BYTES - self.head.len()).min(bytes.len()));
            self.head.extend_from_slice(part);
            let Some(head) = self.head.first_chunk::<HEAD_BYTES>() else { return Ok(None) };
            let frame = Frame::decode(*head)?;
            self.head.clear();
            match frame {
                Frame::Watermark(us) => return Ok(Some(Part::Watermark(us))),
                Frame::Arrow(length) if length == 0 || length > self.bytes_max => {
                    let max = self.bytes_max;
                    return Err(format!("a frame of {length} bytes; it may have 1 to {max}"));
                }
                Frame::Arrow(length) => {
                    let length = length as usize;
                    self.arrow = Some((Vec::with_capacity(length), length));
                }
            }
        }
    }
}

/// Whether these are the metadata of the schema, with zeros behind or without.
fn is_schema(metadata: &Bytes, schema: &Bytes) -> bool {
    metadata.strip_prefix(&schema[..]).is_some_and(|rest| rest.iter().all(|byte| *byte == 0))
}

/// The messages of an Arrow stream: metadata and body of each. Padding behind the last is zeros.
fn split(frame: &Bytes) -> Result<Vec<(Bytes, Bytes)>, String> {
    let mut messages = Vec::new();
    let mut at = 0;
    let word = |at: usize| {
        let bytes = frame.get(at..at + 4).and_then(|bytes| bytes.first_chunk::<4>());
        bytes.map(|bytes| u32::from_le_bytes(*bytes))
    };
    while frame.len() - at >= 8 && frame[at..at + 8] != [0; 8] {
        let cut = || "a message reaches beyond its frame".to_string();
        if word(at) != Some(CONTINUATION) {
            return Err("a frame that is no stream of Arrow IPC".to_string());
        }
        let length = word(at + 4).ok_or_else(cut)? as usize;
        let metadata = at + 8..(at + 8).checked_add(length).ok_or_else(cut)?;
        if metadata.end > frame.len() {
            return Err(cut());
        }
        let message = frame.slice(metadata.clone());
        let body = ArrowMessages::body_bytes(&message)?;
        let end = metadata.end.checked_add(body).filter(|end| *end <= frame.len());
        let end = end.ok_or_else(cut)?;
        messages.push((message, frame.slice(metadata.end..end)));
        at = end;
    }
    Ok(messages)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_whole_however_the_bytes_are_cut() {
        let long: Vec<u8> = (0..=255).cycle().take(1000).collect();
        let mut stream = Vec::new();
        for bytes in [&long[..1], &long[..], &long[..16]] {
            stream.extend(Frame::Arrow(bytes.len() as u64).encode());
            stream.extend(bytes);
            stream.extend(Frame::Watermark(bytes.len() as i64).encode());
        }
        let expected = [1, 1000, 16].into_iter().flat_map(|length: usize| {
            [Part::Arrow(Bytes::copy_from_slice(&long[..length])), Part::Watermark(length as i64)]
        });
        let expected: Vec<Part> = expected.collect();
        for step in [1, 3, 8, 15, 16, 17, 500, 5000] {
            let (mut frames, mut found) = (Frames::new(1000), Vec::new());
            for mut bytes in stream.chunks(step) {
                while let Some(part) = frames.take(&mut bytes).unwrap() {
                    found.push(part);
                }
                assert!(bytes.is_empty());
            }
            assert_eq!(found, expected, "{step} bytes at a time");
            assert!(!frames.is_amid());
            let mut bytes = &stream[..20];
            while frames.take(&mut bytes).unwrap().is_some() {}
            assert!(frames.is_amid());
        }
    }

    #[test]
    fn rubbish_is_refused() {
        let mut frames = Frames::new(1000);
        let error = frames.take(&mut &Frame::Arrow(1001).encode()[..]).unwrap_err();
        assert!(error.contains("1001 bytes; it may have 1 to 1000"), "{error}");
        assert!(Frames::new(1000).take(&mut &[7; 16][..]).is_err());
        assert!(Frames::new(1000).take(&mut &Frame::Arrow(0).encode()[..]).is_err());
        let mut message = CONTINUATION.to_le_bytes().to_vec();
        message.extend(1000_u32.to_le_bytes());
        for bytes in
            [&b"no stream of Arrow"[..], &message, &[message.clone(), vec![1; 1000]].concat()]
        {
            assert!(split(&Bytes::copy_from_slice(bytes)).is_err());
        }
        assert_eq!(split(&Bytes::new()).unwrap(), []);
        assert_eq!(split(&Bytes::from_static(&[0; 24])).unwrap(), []);
    }
}
