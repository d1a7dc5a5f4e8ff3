//! Frames of the control plane: a length of four bytes (little-endian), then that many bytes of
//! JSON.

use std::io;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Bytes of a frame at the most: the addresses of 64 processes' queue pairs take a few million.
pub const FRAME_BYTES_MAX: usize = 64 << 20;

/// A peer has sent what is no message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Longer than any message.
    #[error("a message of {bytes} bytes, where {FRAME_BYTES_MAX} are the most")]
    Length {
        /// The length it claims.
        bytes: usize,
    },
    /// Not one of the messages.
    #[error("a message that cannot be read: {0}")]
    Message(String),
}

/// The bytes of a message with its length.
pub fn encode(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; 4];
    serde_json::to_writer(&mut bytes, message).map_err(io::Error::other)?;
    let length = bytes.len() - 4;
    if length > FRAME_BYTES_MAX {
        return Err(io::Error::other(FrameError::Length { bytes: length }));
    }
    bytes[..4].copy_from_slice(&(length as u32).to_le_bytes());
    Ok(bytes)
}

/// Cuts a stream of bytes into messages. Memory grows with what has come, not with what is
/// announced.
#[derive(Debug, Default)]
pub struct Frames {
    bytes: Vec<u8>,
}

impl Frames {
    /// Takes what has arrived.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The next message, once complete. After an error, the rest of the stream is meaningless.
    pub fn take<M: DeserializeOwned>(&mut self) -> Result<Option<M>, FrameError> {
        let Some((length, rest)) = self.bytes.split_first_chunk::<4>() else { return Ok(None) };
        let length = u32::from_le_bytes(*length) as usize;
        if length > FRAME_BYTES_MAX {
            return Err(FrameError::Length { bytes: length });
        }
        let Some(payload) = rest.get(..length) else { return Ok(None) };
        let message =
            serde_json::from_slice(payload).map_err(|e| FrameError::Message(e.to_string()))?;
        self.bytes.drain(..4 + length);
        Ok(Some(message))
    }
}
