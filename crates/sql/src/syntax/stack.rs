//! A large stack for planning, which recurses over the statement with large frames.

use crate::syntax::prelude::*;

use std::io;

/// Reserved, not used: pages are mapped when they are touched.
const STACK_BYTES: usize = 256 << 20;

/// Message of an error that stands for a panic.
pub(crate) const PANICKED: &str = "planning panicked";

/// Runs `work` on a thread with a large stack.
pub(crate) fn on_large_stack<T: Send>(work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .name("planner".into())
            .stack_size(STACK_BYTES)
            .spawn_scoped(scope, work)
            .map_err(|e| refused(&e))?;
        thread.join().unwrap_or_else(|panic| {
            let text = panic
                .downcast_ref::<String>()
                .cloned()
                .or_else(|| panic.downcast_ref::<&str>().map(|s| s.to_string()))
                .unwrap_or_default();
            Err(SqlError::internal(format!("{PANICKED}: {text}")))
        })
    })
}

/// The system gives no thread of that size.
fn refused(error: &io::Error) -> SqlError {
    let message = format!(
        "cannot plan the statement: the system refuses a thread with a stack of {} MB ({error})",
        STACK_BYTES >> 20
    );
    SqlError::new(ErrorKind::System, message).help(
        "the stack takes address space, hardly any memory: raise the limit of that (ulimit -v) or of \
         processes (ulimit -u)",
    )
}
