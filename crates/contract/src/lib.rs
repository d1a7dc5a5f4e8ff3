//! The contract between the parts that plan queries, bring data and run jobs.
//!
//! The SQL crate turns text into a [`plan::Plan`]. Connectors implement [`table::Table`] and
//! [`sink::Sink`]. The engine runs the plan over them. None of the three needs the others; each
//! needs only what is defined here: plans and their [expressions](expr), tables and sinks,
//! [`Settings`], [errors](error), and the [wording] of numbers and times in messages.
//!
//! What it promises: the types and traits know no file and no thread, and no SQL text but for
//! [`declaration`], which writes some. What it does not do: it runs nothing.

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
pub mod nested;
pub mod plan;
pub mod pruning;
pub mod settings;
pub mod sink;
pub mod table;
pub mod texts;
mod wider;
pub mod wording;
pub mod wrapped;
pub mod zone;

pub use error::{Error, Result};
pub use settings::Settings;
