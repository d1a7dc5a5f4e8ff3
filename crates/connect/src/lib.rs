//! Sources, sinks and formats of Millstream: what stands behind `CREATE TABLE … WITH (…)`.

mod csv;
mod datetime;
mod number;
mod options;
mod random;
mod types;

pub use csv::{CsvTable, fuzz_csv};
