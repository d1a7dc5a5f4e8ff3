//! Names and their meaning: the catalogue of tables and views, the columns, windows and watermarks
//! of a relation.

pub(crate) mod alike;
pub(crate) mod catalog;
pub(crate) mod ends;
pub(crate) mod given;
pub(crate) mod handles;
pub(crate) mod no_time;
pub(crate) mod outer_names;
pub(crate) mod readings;
pub(crate) mod references;
pub(crate) mod scope;
pub(crate) mod varying;
pub(crate) mod views;
pub(crate) mod window_kinds;
pub(crate) mod with_names;
pub(crate) mod written;
