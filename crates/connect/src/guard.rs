//! Running a library on bytes that nobody vouches for.
//!
//! The libraries that read Parquet and Arrow IPC return errors for most faults of a file. Where two
//! numbers of a file contradict each other, the libraries may panic instead: they are written for
//! well-made files, and are memory safe for all. Such a panic is the file's fault, not ours, and
//! becomes an error here. Sizes for which the libraries would allocate blindly are checked against
//! the file's length beforehand.
//!
//! Nothing of such a panic is printed. For that the process gets a panic hook, once, which passes
//! on all other panics to the hook that was there before.

use std::cell::Cell;
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

thread_local! {
    /// Whether this thread runs something of which a panic is an error.
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// The result of `read`; a panic becomes an error with its message.
pub(crate) fn guarded<T, E: Display>(read: impl FnOnce() -> Result<T, E>) -> Result<T, String> {
    quieten();
    let before = GUARDED.replace(true);
    // Nothing that outlives a failed read is changed by it but caches of whole pages.
    let outcome = catch_unwind(AssertUnwindSafe(read));
    GUARDED.set(before);
    match outcome {
        Ok(Ok(read)) => Ok(read),
        Ok(Err(error)) => Err(error.to_string()),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or(panic.downcast_ref::<&str>().copied());
            Err(text.unwrap_or("it contradicts itself").to_string())
        }
    }
}

/// Puts the hook in place that says nothing of panics that become errors.
fn quieten() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = take_hook();
        set_hook(Box::new(move |panic| {
            // A thread that ends has no such variable any more, and runs no guarded code.
            if !GUARDED.try_with(Cell::get).unwrap_or(false) {
                before(panic);
            }
        }));
    });
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    use super::*;

    #[test]
    fn a_panic_is_an_error_and_only_others_reach_the_hook() {
        // In front of it, so that panics of other tests do not count.
        let seen = Arc::new(AtomicUsize::new(0));
        quieten();
        let failed = guarded(|| -> Result<(), String> { panic!("row {} of 3", 7) });
        assert_eq!(failed, Err("row 7 of 3".to_string()));
        assert_eq!(guarded(|| -> Result<(), String> { Err("no".into()) }), Err("no".to_string()));
        assert_eq!(guarded(|| Ok::<_, String>(5)), Ok(5));
        assert!(!GUARDED.get(), "a panic after that is as any other");
        let counted = seen.clone();
        let within = thread::spawn(move || {
            let inner = guarded(|| -> Result<bool, String> {
                let innermost = guarded(|| -> Result<(), String> { panic!("twice") });
                counted.fetch_add(usize::from(innermost.is_err()), Ordering::Relaxed);
                Ok(GUARDED.get())
            });
            assert_eq!(inner, Ok(true), "still guarded after what failed within");
        });
        assert!(within.join().is_ok());
        assert_eq!(seen.load(Ordering::Relaxed), 1);
    }
}
