//! Skeleton of the engine.
pub mod error;
pub mod expr;
pub mod plan;
pub mod settings;
pub mod sink;
pub mod stats;
pub mod table;

pub use error::{Error, Result};
pub use settings::Settings;
pub use stats::Stats;
