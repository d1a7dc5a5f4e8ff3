//! Windows: calls of window functions, group windows, windows of a stage's rows, and sessions.

pub(crate) mod assigned;
pub(crate) mod each_window;
pub(crate) mod group_windows;
pub(crate) mod in_some_window;
pub(crate) mod session_records;
pub(crate) mod sessions;
pub(crate) mod stage_windows;
pub(crate) mod window_functions;
