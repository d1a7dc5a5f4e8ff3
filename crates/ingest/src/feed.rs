//! A ring as the job reads it: segments become frames, frames become messages of Arrow IPC.
//!
//! Bytes of a segment are copied once, out of memory that the producer can write, before anything
//! in them is believed.

use std::net::TcpStream;

use bytes::Bytes;
use millstream_connect::{ArrowMessage, ArrowMessages};
use millstream_dfi::Consumed;

use crate::fabric::{Inflow, Published};
use crate::ring::{Looked, Ring};
use crate::slots::Sender;
use crate::wire::{self, Answer, Frame, HEAD_BYTES};

/// In front of each message of an Arrow stream, then the length of its metadata.
const CONTINUATION: u32 = u32::MAX;
/// At the end of an Arrow stream: metadata of no length.
const END_OF_STREAM: [u8; 8] = [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0];

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
    /// The producer has closed the flow.
    has_ended: bool,
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
        Feed {
            inflow,
            frames: Frames::new(frame_bytes_max),
            messages,
            schema,
            sender: Some(sender),
            control,
            place,
            has_ended: false,
            _flow: flow,
        }
    }

    /// Takes the next segment. An error is a fault of the producer.
    fn take(&mut self) -> Result<Looked, String> {
        let Some(sender) = &mut self.sender else { return Ok(Looked::Gone) };
        sender.check().map_err(|why| why.to_string())?;
        if self.has_ended {
            return Ok(self.end());
        }
        let batch = match self.inflow.look() {
            Ok(Consumed::Batch(batch)) => batch,
            // Only ordered flows have gaps.
            Ok(Consumed::Empty | Consumed::Gap(_)) => return Ok(Looked::Nothing),
            Ok(Consumed::End) if self.frames.is_amid() => {
                return Err(format!("{}: the stream ends amid a frame", self.place));
            }
            Ok(Consumed::End) => {
                self.has_ended = true;
                return Ok(self.end());
            }
            Err(error) => {
                self.refuse(&error.to_string());
                return Ok(Looked::Gone);
            }
        };
        let fault = |why: String| format!("{}: {why}", self.place);
        let mut bytes = batch.bytes();
        while let Some(part) = self.frames.take(&mut bytes).map_err(fault)? {
            let frame = match part {
                Part::Arrow(frame) => frame,
                Part::Watermark(us) => {
                    sender.send(None, Some(us)).map_err(|why| why.to_string())?;
                    continue;
                }
            };
            let mut rest = Messages { frame: &frame, at: 0 };
            while let Some((message, body)) = rest.next().map_err(fault)? {
                if !is_schema(message.metadata(), &self.schema) {
                    let taken = self.messages.take(message, body);
                    let taken = taken.map_err(|error| error.to_string())?;
                    sender.send(taken, None).map_err(|why| why.to_string())?;
                }
            }
        }
        Ok(Looked::Some)
    }

    /// Answers the end, once workers have decoded everything.
    fn end(&mut self) -> Looked {
        let settled = self.sender.take_if(|sender| sender.is_settled());
        let Some(sender) = settled else { return Looked::Ending };
        let answer = match sender.end() {
            Ok(rows) => Answer::Taken(rows),
            Err(why) => Answer::Refused(why.to_string()),
        };
        // The producer may be gone.
        let _ = wire::answer(&mut self.control, &answer);
        Looked::Gone
    }
}

impl Ring for Feed {
    fn look(&mut self) -> Looked {
        self.take().unwrap_or_else(|fault| {
            self.sender.iter_mut().for_each(|sender| sender.blame(&fault));
            self.refuse(&fault);
            Looked::Gone
        })
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
                Frame::Arrow(length)
                    if length == 0 || length > self.bytes_max || !length.is_multiple_of(8) =>
                {
                    let expected = format!("a multiple of 8, at most {}", self.bytes_max);
                    return Err(format!("a frame of {length} bytes; expected {expected}"));
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
fn is_schema(metadata: &[u8], schema: &Bytes) -> bool {
    metadata.strip_prefix(&schema[..]).is_some_and(|rest| rest.iter().all(|byte| *byte == 0))
}

/// The messages of a frame, a part of an Arrow stream. Behind the last one there are zeros, perhaps
/// after the mark of the stream's end.
struct Messages<'f> {
    frame: &'f Bytes,
    at: usize,
}

impl Messages<'_> {
    /// The next message, and its body.
    fn next(&mut self) -> Result<Option<(ArrowMessage, Bytes)>, String> {
        let rest = &self.frame[self.at..];
        let Some(head) = rest.first_chunk::<8>().filter(|head| !is_last(head)) else {
            let padding = rest.strip_prefix(&END_OF_STREAM[..]).unwrap_or(rest);
            let are_zeros = padding.iter().all(|byte| *byte == 0);
            return are_zeros.then_some(None).ok_or_else(|| {
                "behind the last message of a frame there are other bytes than zeros".to_string()
            });
        };
        let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| head[at + i]));
        if word(0) != CONTINUATION {
            return Err("a frame that is no stream of Arrow IPC".to_string());
        }
        let cut = || "a message reaches beyond its frame".to_string();
        let (first, length) = (self.at + 8, word(4) as usize);
        let middle = first.checked_add(length).filter(|end| *end <= self.frame.len());
        let middle = middle.ok_or_else(cut)?;
        let message = ArrowMessage::new(self.frame.slice(first..middle))?;
        let body = usize::try_from(message.body_bytes()).ok();
        let end = body.and_then(|body| middle.checked_add(body));
        self.at = end.filter(|end| *end <= self.frame.len()).ok_or_else(cut)?;
        Ok(Some((message, self.frame.slice(middle..self.at))))
    }
}

/// Whether no message begins so.
fn is_last(head: &[u8; 8]) -> bool {
    *head == [0; 8] || *head == END_OF_STREAM
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_whole_however_the_bytes_are_cut() {
        let long: Vec<u8> = (0..=255).cycle().take(1000).collect();
        let mut stream = Vec::new();
        for bytes in [&long[..8], &long[..], &long[..16]] {
            stream.extend(Frame::Arrow(bytes.len() as u64).encode());
            stream.extend(bytes);
            stream.extend(Frame::Watermark(bytes.len() as i64).encode());
        }
        let expected = [8, 1000, 16].into_iter().flat_map(|length: usize| {
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

    fn messages(frame: &Bytes) -> Result<usize, String> {
        let mut rest = Messages { frame, at: 0 };
        let mut count = 0;
        while rest.next()?.is_some() {
            count += 1;
        }
        Ok(count)
    }

    #[test]
    fn rubbish_is_refused() {
        let mut frames = Frames::new(1000);
        let error = frames.take(&mut &Frame::Arrow(1008).encode()[..]).unwrap_err();
        assert!(error.contains("1008 bytes; expected a multiple of 8, at most 1000"), "{error}");
        assert!(Frames::new(1000).take(&mut &[7; 16][..]).is_err());
        for length in [0, 1, 12] {
            let head = Frame::Arrow(length).encode();
            assert!(Frames::new(1000).take(&mut &head[..]).is_err(), "{length}");
        }
        let mut message = CONTINUATION.to_le_bytes().to_vec();
        message.extend(1000_u32.to_le_bytes());
        for bytes in
            [&b"no stream of Arrow"[..], &message, &[message.clone(), vec![1; 1000]].concat()]
        {
            assert!(messages(&Bytes::copy_from_slice(bytes)).is_err());
        }
        assert_eq!(messages(&Bytes::new()), Ok(0));
        assert_eq!(messages(&Bytes::from_static(&[0; 24])), Ok(0));
    }

    /// Frames of version 1, with messages that `pyarrow` has written (`tests/golden/wire`).
    fn golden() -> Vec<u8> {
        include_bytes!("../../../tests/golden/wire/ring-1.frames").to_vec()
    }

    fn parts(mut bytes: &[u8]) -> Vec<Part> {
        let mut frames = Frames::new(1 << 20);
        let parts = std::iter::from_fn(|| frames.take(&mut bytes).unwrap()).collect();
        assert!(!frames.is_amid());
        parts
    }

    #[test]
    fn frames_of_version_1_are_taken() {
        let parts = parts(&golden());
        let [Part::Arrow(first), Part::Watermark(us), Part::Arrow(second)] = &parts[..] else {
            panic!("{parts:?}");
        };
        // A schema, a dictionary and a batch; an addition, a batch and the end.
        assert_eq!((messages(first), *us, messages(second)), (Ok(3), 1_700_000_000_000_000, Ok(2)));
        let metadata = |frame, number| {
            let mut rest = Messages { frame, at: 0 };
            (0..number).for_each(|_| drop(rest.next()));
            rest.next().unwrap().unwrap().0
        };
        let schema = Bytes::copy_from_slice(metadata(first, 0).metadata());
        assert!(is_schema(&schema, &schema) && !is_schema(metadata(first, 1).metadata(), &schema));
    }

    #[test]
    fn what_stands_behind_zeros_is_refused() {
        let parts = parts(&golden());
        let Part::Arrow(frame) = &parts[0] else { panic!("{parts:?}") };
        // It ends with zeros.
        let frame = &frame[..frame.len() - 8];
        for (end, expected) in [
            (vec![0; 16], Ok(3)),
            (END_OF_STREAM.to_vec(), Ok(3)),
            ([END_OF_STREAM, [0; 8]].concat(), Ok(3)),
            ([[0; 8], [1; 8]].concat(), Err(())),
            ([&[0; 8], frame].concat(), Err(())),
            ([&END_OF_STREAM, frame].concat(), Err(())),
        ] {
            let frame = Bytes::from([frame, &end].concat());
            assert_eq!(messages(&frame).map_err(drop), expected, "{end:?}");
        }
    }

    /// Damaged bytes give messages or an error, never a panic, however they are cut.
    #[test]
    fn damaged_frames_are_errors() {
        let (golden, mut seed) = (golden(), 1_u64);
        let mut next = || {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) as usize
        };
        let mut failed = 0;
        for round in 0..20_000 {
            let mut damaged = golden.clone();
            for _ in 0..round % 4 {
                let at = next() % damaged.len();
                damaged[at] = if next() % 2 == 0 { 0xff } else { next() as u8 };
            }
            damaged.truncate(damaged.len() - if round % 5 == 0 { next() % 400 } else { 0 });
            let (mut frames, mut fault) = (Frames::new(1 << 20), false);
            for mut bytes in damaged.chunks(1 + next() % 500) {
                while let Ok(Some(part)) = frames.take(&mut bytes).inspect_err(|_| fault = true) {
                    if let Part::Arrow(frame) = part {
                        fault |= messages(&frame).is_err();
                    }
                }
                if fault {
                    break;
                }
            }
            failed += usize::from(fault || frames.is_amid());
            assert!(round % 4 > 0 || round % 5 == 0 || !fault, "an undamaged stream");
        }
        assert!(failed > 5_000, "{failed} of 20,000 are found");
    }
}
