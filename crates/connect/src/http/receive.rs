//! Receives the body of a request, whole or in chunks (RFC 9112, 7.1).

use std::time::{Duration, Instant};

use memchr::memmem;

use super::body::{LINE_BYTES_MAX, chunk_bytes, too_large};
use super::message::{Answer, FIELDS_MAX};
use super::request::Post;
use super::route::Room;
use super::server::{End, Sender};

/// The slowest sender of a large body.
const BYTES_PER_SECOND_MIN: u64 = 64 << 10;

/// Bounds of a body.
pub(super) struct Bounds {
    pub(super) bytes_max: u64,
    /// The begin of the body's time, and the time beside the time for its bytes.
    pub(super) begin: Instant,
    pub(super) patience: Duration,
}

impl Bounds {
    /// The end of the time for so many bytes.
    fn end(&self, bytes: u64) -> Instant {
        self.begin + self.patience + Duration::from_secs(bytes / BYTES_PER_SECOND_MIN)
    }
}

impl Sender {
    /// The body of a request, as it is sent.
    pub(super) fn body(
        &mut self,
        post: &Post,
        room: &mut Room,
        bounds: &Bounds,
    ) -> Result<Vec<u8>, End> {
        let Some(length) = post.length else {
            self.go_on(post)?;
            return self.chunks(room, bounds);
        };
        if length > bounds.bytes_max {
            return Err(too_large(bounds.bytes_max).into());
        }
        room.add(length)?;
        self.go_on(post)?;
        // Checked: the bound of a body's length.
        let bytes = usize::try_from(length).unwrap_or(usize::MAX);
        self.fill(bytes, bounds.end(length))?;
        let rest = self.buffer.split_off(bytes);
        Ok(std::mem::replace(&mut self.buffer, rest))
    }

    /// Tells a waiting sender to go on.
    fn go_on(&mut self, post: &Post) -> Result<(), End> {
        match post.waits && self.buffer.is_empty() {
            true => self.write(b"HTTP/1.1 100 Continue\r\n\r\n"),
            false => Ok(()),
        }
    }

    /// A body that comes in chunks.
    fn chunks(&mut self, room: &mut Room, bounds: &Bounds) -> Result<Vec<u8>, End> {
        let mut body = Vec::new();
        loop {
            let before = body.len() as u64;
            let bytes = chunk_bytes(&self.line(bounds.end(before))?)?;
            if bytes == 0 {
                break;
            }
            if bytes > bounds.bytes_max - before {
                return Err(too_large(bounds.bytes_max).into());
            }
            room.add(bytes)?;
            let count = bytes as usize;
            self.fill(count + 2, bounds.end(before + bytes))?;
            if !self.buffer[count..].starts_with(b"\r\n") {
                return Err(Answer::new(400, "a chunk does not end where it should").into());
            }
            body.extend_from_slice(&self.buffer[..count]);
            self.buffer.drain(..count + 2);
        }
        // Fields behind the body do not count.
        for _ in 0..FIELDS_MAX {
            if self.line(bounds.end(body.len() as u64))?.is_empty() {
                return Ok(body);
            }
        }
        let text = format!("more than {FIELDS_MAX} fields behind the body");
        Err(Answer::new(431, text).into())
    }

    /// A line between chunks, without its end.
    fn line(&mut self, end: Instant) -> Result<Vec<u8>, End> {
        loop {
            let begin = &self.buffer[..self.buffer.len().min(LINE_BYTES_MAX)];
            if let Some(at) = memmem::find(begin, b"\r\n") {
                let mut line: Vec<u8> = self.buffer.drain(..at + 2).collect();
                line.truncate(at);
                return Ok(line);
            }
            if self.buffer.len() >= LINE_BYTES_MAX {
                return Err(Answer::new(400, "a line between chunks has no end").into());
            }
            // Bytes of the chunk are better received with the rest of it.
            self.receive(LINE_BYTES_MAX / 4, end)?;
        }
    }
}
