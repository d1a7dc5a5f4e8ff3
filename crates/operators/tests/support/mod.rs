//! Random numbers and tables in memory, for unit tests of this crate and tests of the engine.

#![allow(dead_code, reason = "unit tests use a part of it")]

mod memory;
mod random;

pub(crate) use memory::Memory;
pub(crate) use random::Random;
