//! Tests of the SQL crate through its public interface.

mod common;
mod plan;
mod suite;
