//! The contract: what those who plan queries, those who bring data and those who run jobs agree on.
//!
//! The SQL crate makes a [`plan::Plan`] out of text, connectors implement [`table::Table`] and
//! [`sink::Sink`], and the engine runs the plan over them. None of them needs the others for that,
//! only what stands here: plans and their [expressions](expr), tables and sinks, [`Settings`],
//! [errors](error), and how numbers and times are [worded](wording) in messages.
//!
//! What it promises: types and traits that know no SQL text, no file and no thread. What it does
//! not: it runs nothing.

mod available;
pub mod compare;
pub mod error;
pub mod expr;
pub mod interval;
pub mod plan;
pub mod settings;
pub mod sink;
pub mod table;
pub mod texts;
pub mod wording;

pub use error::{Error, Result};
pub use settings::Settings;
