//! How the program ends when the system refuses memory that it cannot do without.

use std::alloc::{Layout, handle_alloc_error};
use std::sync::OnceLock;

static REPORT: OnceLock<fn(usize) -> !> = OnceLock::new();

/// Lets `report` end the program, with a message, when the system has refused so many bytes. It
/// must not allocate. The first one given holds; without one the program aborts, as Rust's do.
pub fn on_refused_memory(report: fn(usize) -> !) {
    let _ = REPORT.set(report);
}

/// Ends the program, since there is no memory of this layout.
#[cold]
pub(crate) fn refused(layout: Layout) -> ! {
    match REPORT.get() {
        Some(report) => report(layout.size()),
        None => handle_alloc_error(layout),
    }
}
