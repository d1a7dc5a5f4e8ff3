//! Tests of connectors through their public interface, in one program.

mod files;
mod intervals;
mod journal;
mod layouts;
mod metadata;
mod registry;
mod resumed_sinks;
mod resuming;
mod support;
