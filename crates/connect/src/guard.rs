//! Running a library on bytes that nobody vouches for.
//!
//! The libraries that read Parquet and Arrow IPC return errors for most faults of a file. Where two
//! numbers of a file contradict each other, the libraries may panic instead: they are written for
//! well-made files, and are memory safe for all. Such a panic is the file's fault, not ours, and
//! becomes an error here. Sizes for which the libraries would allocate blindly are checked against
//! the file's length beforehand.
//!
//! The panic hook is the program's: `millstream` prints nothing, and the default hook prints a line
//! before the error is known.

use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The result of `read`; a panic becomes an error with its message.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_error() {
        let failed = guarded(|| -> Result<(), String> { panic!("row {} of 3", 7) });
        assert_eq!(failed, Err("row 7 of 3".to_string()));
        let failed = guarded(|| -> Result<(), String> { panic!("row 8") });
        assert_eq!(failed, Err("row 8".to_string()));
        assert_eq!(guarded(|| -> Result<(), String> { Err("no".into()) }), Err("no".to_string()));
        assert_eq!(guarded(|| Ok::<_, String>(5)), Ok(5));
    }
}
