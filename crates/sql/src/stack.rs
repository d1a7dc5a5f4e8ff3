//! Planning recurses over the statement, and its frames are large: it runs on a stack of its own.

use crate::error::{Result, SqlError};

/// Reserved, not used: pages are mapped when they are touched.
const STACK_BYTES: usize = 256 << 20;

/// What an error says that stands for a panic.
pub(crate) const PANICKED: &str = "planning panicked";

/// Runs `work` on a thread with a large stack.
pub(crate) fn on_large_stack<T: Send>(work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .name("planner".into())
            .stack_size(STACK_BYTES)
            .spawn_scoped(scope, work)
            .map_err(|e| SqlError::internal(format!("no thread for planning: {e}")))?;
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
