//! Tests of whole jobs on the engine alone, in one program: each program costs time to build.

mod equivalence;
mod graphs;
mod joins;
mod memory;
mod order;
mod processes;
mod progress;
mod restart;
mod sessions;
mod simulated_processes;
mod slow_sink;
mod splits;
mod stages;
mod support;
mod values;
mod windows;
