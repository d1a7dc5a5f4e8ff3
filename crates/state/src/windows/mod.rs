//! Windows of several slices: stacks of panes, sessions, and slices that pack several panes.

pub(crate) mod combiner;
pub(crate) mod noted;
pub(crate) mod panes;
pub(crate) mod runs;
pub(crate) mod sessions;
pub(crate) mod stacks;
