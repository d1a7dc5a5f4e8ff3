//! Where the messages of Arrow IPC come from: a file with a footer, a stream in a file, a pipe.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::task::Waker;

use arrow::buffer::Buffer;
use arrow::datatypes::Schema;
use arrow::ipc::{self, root_as_footer};
use bytes::Bytes;
use millstream_contract::{Error, Result, decoding};

use super::message::{Message, MessageKind, schema_of};
use crate::columns::damaged;
use crate::guard::guarded;
use crate::input::{Anywhere, Input, Name, Pipe, io_error};

/// A file begins and ends with it.
pub(super) const MAGIC: &[u8; 6] = b"ARROW1";
/// A file's magic, and what fills it up to eight bytes.
const HEAD_BYTES: u64 = 8;
/// The length of the footer, and the magic.
const TAIL_BYTES: usize = 10;
/// Before the length of a message, since version 0.15.
pub(super) const CONTINUATION: u32 = u32::MAX;
/// A message's metadata of more bytes are taken for damage.
const METADATA_BYTES_MAX: u32 = 256 << 20;
/// Bytes in which a message's metadata are looked for at first.
const LOOK_BYTES: usize = 4 << 10;
/// Bytes taken from a pipe at once.
const PIPE_BYTES: usize = 64 << 10;

/// Messages, in their order.
pub(super) struct Source {
    name: Name,
    from: MessageSource,
}

enum MessageSource {
    /// Where the messages lie is known: first dictionaries, then record batches.
    File {
        bytes: Anywhere,
        schema: Arc<Schema>,
        blocks: Vec<MessageBlock>,
        dictionaries: usize,
        next: usize,
    },
    /// Each lies behind the one before.
    Stream { bytes: Anywhere, next: u64 },
    /// A pipe, with received bytes that have not been used yet.
    Pipe { pipe: Pipe, come: Vec<u8>, at: PipePart },
}

/// Next part of a pipe's input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PipePart {
    /// The beginning: a stream, or a file's magic with a stream behind.
    Beginning,
    /// Padding of the magic, which some writers make longer than necessary.
    Filling,
    /// A message.
    Message,
}

/// Where a message lies in a file.
#[derive(Debug, Clone, Copy)]
struct MessageBlock {
    offset: u64,
    metadata_bytes: usize,
    body_bytes: u64,
}

/// Where a message's body is.
#[derive(Debug, Clone)]
pub(super) enum Body {
    /// At this offset of a file.
    At(Anywhere, u64),
    Here(Buffer),
}

/// Next part of the input.
pub(super) enum NextMessage {
    Message(Message, Body),
    /// The waker is called when more has come.
    Pending,
    Ended,
}

impl Source {
    pub(super) fn open(input: Input, name: Name) -> Result<Source> {
        if let Input::Pipe(pipe) = input {
            return Ok(Source {
                name,
                from: MessageSource::Pipe { pipe, come: Vec::new(), at: PipePart::Beginning },
            });
        }
        let bytes = Anywhere::new(input, name.clone(), "Arrow IPC")?;
        let head = bytes.read_at_most(0, MAGIC.len())?;
        let from = match head.as_ref() == MAGIC {
            true => file(bytes)?,
            false => MessageSource::Stream { bytes, next: 0 },
        };
        Ok(Source { name, from })
    }

    /// For messages.
    pub(super) fn name(&self) -> &Name {
        &self.name
    }

    /// The schema, which comes first; of a pipe, it is waited for.
    pub(super) fn schema(&mut self) -> Result<Arc<Schema>> {
        if let MessageSource::File { schema, .. } = &self.from {
            return Ok(schema.clone());
        }
        let first = loop {
            match self.next(Waker::noop())? {
                NextMessage::Pending => self.wait()?,
                NextMessage::Message(message, _) => break message,
                NextMessage::Ended => return Err(self.is_none("found one without a schema")),
            }
        };
        let schema = first.schema();
        Ok(Arc::new(schema.map_err(|message| self.is_none(&format!("found {message}")))?))
    }

    /// Whether record batches can be found by their number ([`Source::go_to`]).
    pub(super) fn go_to(&mut self, batch: u64) -> bool {
        match &mut self.from {
            MessageSource::File { dictionaries, blocks, next, .. } if *next >= *dictionaries => {
                let batch = usize::try_from(batch).unwrap_or(usize::MAX);
                *next = dictionaries.saturating_add(batch).min(blocks.len());
                true
            }
            _ => false,
        }
    }

    /// Whether it can be read again.
    pub(super) fn is_pipe(&self) -> bool {
        matches!(self.from, MessageSource::Pipe { .. })
    }

    /// The next message.
    pub(super) fn next(&mut self, waker: &Waker) -> Result<NextMessage> {
        let name = self.name.clone();
        match &mut self.from {
            MessageSource::File { bytes, blocks, next, .. } => {
                let Some(block) = blocks.get(*next).copied() else { return Ok(NextMessage::Ended) };
                *next += 1;
                let MessageBlock { offset, metadata_bytes, body_bytes } = block;
                let metadata = bytes.read(offset, metadata_bytes)?;
                let wrong = |message: String| damaged(&at(&name, offset), message);
                let (prefix, _) = prefix(&metadata).ok_or_else(|| wrong(CUT_OFF.into()))?;
                let message = Message::new(metadata.slice(prefix..)).map_err(wrong)?;
                if message.body_bytes != body_bytes {
                    return Err(wrong("its footer says otherwise of its length".into()));
                }
                let body = Body::At(bytes.clone(), offset + metadata_bytes as u64);
                Ok(NextMessage::Message(message, body))
            }
            MessageSource::Stream { bytes, next } => from_stream(bytes, next),
            MessageSource::Pipe { pipe, come, at } => from_pipe(pipe, come, at, &name, waker),
        }
    }

    /// Waits until more has come through a pipe.
    fn wait(&mut self) -> Result<()> {
        let MessageSource::Pipe { pipe, come, .. } = &mut self.from else { return Ok(()) };
        take_in(pipe, come, &self.name).map(drop)
    }

    fn is_none(&self, found: &str) -> Error {
        is_none(&self.name, found)
    }
}

const CUT_OFF: &str = "it ends within a message";

fn is_none(name: &str, found: &str) -> Error {
    Error::Data {
        place: name.to_string(),
        message: format!("expected Arrow IPC, a file or a stream, {found}"),
        help: "it may have been cut off, or 'format' is another".into(),
    }
}

fn at(name: &str, offset: u64) -> String {
    format!("{name}, offset {offset}")
}

/// Lengths in front of a message: of this prefix, and of the metadata behind it.
fn prefix(bytes: &[u8]) -> Option<(usize, u32)> {
    let word = |at: usize| Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk::<4>()?));
    match word(0)? {
        CONTINUATION => Some((8, word(4)?)),
        length => Some((4, length)),
    }
}

/// Reads the footer of a file.
fn file(bytes: Anywhere) -> Result<MessageSource> {
    let name = bytes.name().clone();
    let tail_at = bytes.length().saturating_sub(TAIL_BYTES as u64);
    let tail = bytes.read_at_most(tail_at, TAIL_BYTES)?;
    let Some((length, MAGIC)) = tail
        .split_first_chunk::<4>()
        .and_then(|(length, magic)| Some((u32::from_le_bytes(*length), magic.first_chunk::<6>()?)))
    else {
        return Err(is_none(&name, "which ends with ARROW1"));
    };
    let footer_at = tail_at.checked_sub(u64::from(length)).filter(|at| *at >= HEAD_BYTES);
    let Some(footer_at) = footer_at else {
        return Err(is_none(&name, &format!("found a file whose footer has {length} bytes")));
    };
    let footer = bytes.read(footer_at, length as usize)?;
    let read = guarded(|| {
        let footer = root_as_footer(&footer).map_err(|error| error.to_string())?;
        let schema = schema_of(footer.schema().ok_or("it has no schema")?)?;
        let block = |block: &ipc::Block| {
            let offset = u64::try_from(block.offset()).ok()?;
            let metadata_bytes = usize::try_from(block.metaDataLength()).ok()?;
            let body_bytes = u64::try_from(block.bodyLength()).ok()?;
            let end = offset.checked_add(metadata_bytes as u64)?.checked_add(body_bytes)?;
            (end <= footer_at).then_some(MessageBlock { offset, metadata_bytes, body_bytes })
        };
        let dictionaries = footer.dictionaries().map_or(0, |blocks| blocks.len());
        let all = footer.dictionaries().into_iter().chain(footer.recordBatches()).flatten();
        let blocks: Option<Vec<MessageBlock>> = all.map(block).collect();
        let blocks = blocks.ok_or("a record batch lies outside of the file")?;
        Ok::<_, String>((Arc::new(schema), blocks, dictionaries))
    });
    let (schema, blocks, dictionaries) =
        read.map_err(|message| damaged(&name, format!("its footer cannot be read: {message}")))?;
    Ok(MessageSource::File { bytes, schema, blocks, dictionaries, next: 0 })
}

/// The message at `next` of a stream in a file, which must end with the mark of its end.
fn from_stream(bytes: &Anywhere, next: &mut u64) -> Result<NextMessage> {
    let (name, offset) = (bytes.name(), *next);
    let look = bytes.read_at_most(offset, LOOK_BYTES)?;
    let Some((before, length)) = prefix(&look) else {
        return Err(match (offset, look.is_empty()) {
            (0, _) => is_none(name, &format!("found {} bytes", look.len())),
            (_, true) => damaged(name, "it ends without the mark of its end"),
            (_, false) => damaged(&at(name, offset), CUT_OFF),
        });
    };
    if length == 0 {
        return Ok(NextMessage::Ended);
    }
    let fits = (before as u64 + u64::from(length)) <= bytes.length().saturating_sub(offset);
    if length > METADATA_BYTES_MAX || offset == 0 && !fits {
        return Err(match offset {
            0 => is_none(name, "found something else"),
            _ => damaged(&at(name, offset), format!("expected a message, found {length}")),
        });
    }
    let end = before + length as usize;
    let metadata = match look.len() >= end {
        true => look.slice(before..end),
        false => bytes.read(offset + before as u64, length as usize)?,
    };
    let message = Message::new(metadata).map_err(|message| match offset {
        0 => is_none(name, &format!("found {message}")),
        _ => damaged(&at(name, offset), message),
    })?;
    let body_at = offset + end as u64;
    let after = body_at.checked_add(message.body_bytes).filter(|after| *after <= bytes.length());
    *next = after.ok_or_else(|| damaged(&at(name, offset), CUT_OFF))?;
    Ok(NextMessage::Message(message, Body::At(bytes.clone(), body_at)))
}

/// Takes in what has come through a pipe, at least a byte; whether there was any.
fn take_in(pipe: &mut Pipe, come: &mut Vec<u8>, name: &str) -> Result<bool> {
    let before = come.len();
    come.resize(before + PIPE_BYTES, 0);
    let got = pipe.read(&mut come[before..]);
    come.truncate(before + got.as_ref().map_or(0, |got| *got));
    let got = got.map_err(|error| io_error(Path::new(name), &error))?;
    Ok(got > 0)
}

/// The next message of a pipe, once all of it has come. What is written as a file holds a stream,
/// too, behind its magic.
fn from_pipe(
    pipe: &mut Pipe,
    come: &mut Vec<u8>,
    at: &mut PipePart,
    name: &Name,
    waker: &Waker,
) -> Result<NextMessage> {
    loop {
        begin(come, at);
        if *at == PipePart::Message
            && let Some(next) = first_of(come, name)?
        {
            return Ok(next);
        }
        if !pipe.ready(waker) {
            return Ok(NextMessage::Pending);
        }
        if !take_in(pipe, come, name)? {
            return match (come.is_empty(), *at) {
                // Whoever writes may close a stream without a word.
                (true, PipePart::Message) => Ok(NextMessage::Ended),
                (_, PipePart::Message) => Err(damaged(name, CUT_OFF)),
                _ => Err(is_none(name, &format!("found {} bytes", come.len()))),
            };
        }
    }
}

/// Passes what stands before the first message.
fn begin(come: &mut Vec<u8>, at: &mut PipePart) {
    if *at == PipePart::Beginning && come.len() >= HEAD_BYTES as usize {
        *at = PipePart::Message;
        if come.starts_with(MAGIC) {
            come.drain(..HEAD_BYTES as usize);
            *at = PipePart::Filling;
        }
    }
    if *at == PipePart::Filling {
        let filling = come.iter().take_while(|byte| **byte == 0).count();
        come.drain(..filling);
        if !come.is_empty() {
            *at = PipePart::Message;
        }
    }
}

/// The first message of what has come, if all of it has.
fn first_of(come: &mut Vec<u8>, name: &Name) -> Result<Option<NextMessage>> {
    let Some((before, length)) = prefix(come) else { return Ok(None) };
    if length == 0 {
        return Ok(Some(NextMessage::Ended));
    }
    if length > METADATA_BYTES_MAX {
        return Err(is_none(name, "found something else"));
    }
    let body_at = before + length as usize;
    let Some(metadata) = come.get(before..body_at) else { return Ok(None) };
    let message = Message::new(Bytes::copy_from_slice(metadata))
        .map_err(|message| is_none(name, &format!("found {message}")))?;
    take(message.body_bytes, name)?;
    let body_bytes = usize::try_from(message.body_bytes).unwrap_or(usize::MAX);
    let end = body_at.saturating_add(body_bytes);
    let Some(body) = come.get(body_at..end) else { return Ok(None) };
    let body = Body::Here(Buffer::from_slice_ref(body));
    come.drain(..end);
    Ok(Some(NextMessage::Message(message, body)))
}

/// Counts bytes for which room is about to be made.
pub(super) fn take(bytes: u64, place: &str) -> Result<()> {
    decoding::take(bytes).map_err(|too_much| damaged(place, too_much.to_string()))
}

impl Message {
    /// Reads all of the body.
    pub(super) fn whole(&self, body: &Body) -> Result<Buffer> {
        match body {
            Body::Here(buffer) => Ok(buffer.clone()),
            Body::At(bytes, offset) => {
                take(self.body_bytes, &at(bytes.name(), *offset))?;
                let length = usize::try_from(self.body_bytes).unwrap_or(usize::MAX);
                Ok(Buffer::from(bytes.read(*offset, length)?))
            }
        }
    }

    /// Whether this is a record batch.
    pub(super) fn rows(&self) -> Option<u64> {
        match self.kind {
            MessageKind::Batch(rows) => Some(rows),
            _ => None,
        }
    }
}
