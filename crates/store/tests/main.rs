//! Tests of a store's promises, in one program.

mod checkpoints;
mod common;
mod crashes;
mod killed;
mod local;
mod manifests;
mod runs;
