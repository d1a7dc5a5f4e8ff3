//! Windows of several slices: stacks of panes, sessions, and slices that pack several panes.

pub(crate) mod noted;
pub(crate) mod packs;
pub(crate) mod sessions;
pub(crate) mod sliding;
pub(crate) mod spread;
pub(crate) mod unpack;
