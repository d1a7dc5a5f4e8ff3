//! The contract between the parts that plan queries, bring data and run jobs.
//!
//! The SQL crate turns text into a [`plan::Plan`]. Connectors implement [`table::Table`] and
//! [`sink::Sink`]. The engine runs the plan over them. The three do not depend on each other, only
//! on the definitions of this crate: plans and their [expressions](expr), tables and sinks,
//! [`Settings`], [errors](error), and the [wording] of numbers and times in messages.
//!
//! Promises: the types and traits know no file and no thread, and no SQL text except in
//! [`declaration`], which writes some. The crate runs nothing.

mod available;
pub mod calendar;
pub mod compare;
pub mod declaration;
pub mod decoding;
mod element;
pub mod error;
pub mod expr;
pub mod floats;
pub mod inferred;
pub mod interval;
pub mod metadata;
pub mod nested;
mod place;
pub mod plan;
mod position;
pub mod pruning;
pub mod reads;
pub mod rows;
mod senders;
pub mod settings;
pub mod sink;
mod split_spec;
pub mod table;
mod table_options;
pub mod texts;
mod wider;
pub mod wording;
pub mod wrapped;
pub mod zone;

pub use error::{Error, Result};
pub use settings::Settings;
