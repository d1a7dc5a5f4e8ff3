//! Tests of the SQL crate through its public interface.

mod common;
mod errors;
mod evaluate;
mod fuzz;
mod graph;
mod growth;
mod joins;
mod joins_broadcast;
mod joins_refused;
mod joins_sessions;
mod metadata;
mod names;
mod nested;
mod plan;
mod processing_time;
mod rehearsal;
mod stage_names;
mod suite;
mod unnest;
mod varying;
mod versions;
mod wide;
mod window_errors;
mod window_order;
mod windows;
mod wrong;
