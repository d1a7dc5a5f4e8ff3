//! Running a library on bytes that nobody vouches for.
//!
//! The libraries that read Parquet and Arrow IPC return errors for most that can be wrong with a
//! file. Where two of its numbers contradict each other they may panic instead: they are written
//! for files that are well made, and are memory safe for others. Such a panic is the file's, not
//! ours, and becomes an error here. What they would make room for without a look at the file's
//! length is checked before they see it.

use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What `read` returns, or in words why it cannot.
pub(crate) fn guarded<T, E: Display>(read: impl FnOnce() -> Result<T, E>) -> Result<T, String> {
    // Nothing that outlives a failed read is changed by it but caches of whole pages.
    match catch_unwind(AssertUnwindSafe(read)) {
        Ok(Ok(read)) => Ok(read),
        Ok(Err(error)) => Err(error.to_string()),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or(panic.downcast_ref::<&str>().copied());
            Err(text.unwrap_or("it contradicts itself").to_string())
        }
    }
}
