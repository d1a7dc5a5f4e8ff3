//! Sealing an upload, and the errors of its service.

use millstream_bucket::{Error as BucketError, Parts};
use millstream_contract::{Error, Result};

/// An error for the user.
pub(super) fn failed(error: BucketError) -> Error {
    match error {
        BucketError::Missing { place } => {
            Error::Io { place, message: "there is no such object".into(), help: String::new() }
        }
        BucketError::Refused { place, message, help } => Error::Io { place, message, help },
    }
}

/// The sealed form of a file: its upload, as text.
pub(super) fn sealed(parts: Parts) -> Result<String> {
    let upload = parts.seal().map_err(failed)?;
    serde_json::to_string(&upload).map_err(|error| Error::Internal(format!("an upload: {error}")))
}
