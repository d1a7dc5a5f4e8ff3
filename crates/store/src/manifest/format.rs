//! A manifest as bytes: JSON, and behind it a line with the checksum of all before.
//!
//! The last line, and the fields `format` and `program`, are the same in every format, so that a
//! later one can be told from damage.

use serde::Deserialize;
use xxhash_rust::xxh3::xxh3_64;

use super::Manifest;
use crate::error::{Error, Result};

/// Version of the format of checkpoints that this program writes, and the highest that it reads.
/// In files of format 1 the words of a row were one column.
pub const FORMAT: u32 = 2;

/// The fields that every format has.
#[derive(Deserialize)]
struct Head {
    format: u32,
    #[serde(default)]
    program: String,
}

impl Manifest {
    /// The manifest as it is stored.
    pub fn to_bytes(&self) -> Vec<u8> {
        // It has no map whose keys are not texts, so it can be written.
        let mut bytes = serde_json::to_vec_pretty(self).unwrap_or_default();
        bytes.push(b'\n');
        let last = last_line(&bytes);
        bytes.extend(last.into_bytes());
        bytes
    }

    /// Reads the bytes of an object, which messages call so.
    ///
    /// # Errors
    ///
    /// [`Error::Damaged`] if they are not the bytes of a manifest, to the last bit, and
    /// [`Error::Foreign`] if another version of the program has written them.
    pub fn from_bytes(object: &str, bytes: &[u8]) -> Result<Manifest> {
        let damaged =
            |message: String| Error::Damaged { object: object.into(), message, before: None };
        let length = last_line(b"").len();
        let (json, last) = bytes
            .split_at_checked(bytes.len().saturating_sub(length))
            .filter(|(json, last)| !json.is_empty() && last.starts_with(b"{\"xxh3\":"))
            .ok_or_else(|| {
                damaged("its last line is not a checksum; it may have been cut off".into())
            })?;
        if last != last_line(json).as_bytes() {
            return Err(damaged("its bytes do not have the checksum of its last line".into()));
        }
        let head: Head = serde_json::from_slice(json)
            .map_err(|error| damaged(format!("it is not a manifest ({error})")))?;
        let (object, program) = (object.to_string(), head.program);
        if head.format > FORMAT {
            let message =
                format!("its format is {}, and this program reads up to {FORMAT}", head.format);
            return Err(Error::Foreign { object, message, program });
        }
        serde_json::from_slice(json).map_err(|error| Error::Foreign {
            object,
            message: error.to_string(),
            program,
        })
    }
}

/// The last line of a manifest of which these bytes come before.
fn last_line(json: &[u8]) -> String {
    format!("{{\"xxh3\":\"{:016x}\"}}\n", xxh3_64(json))
}
