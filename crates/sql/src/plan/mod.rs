//! The planner: statements one by one, the graph of stages to the engine's plan, EXPLAIN.

pub(crate) mod assemble;
pub(crate) mod create;
pub(crate) mod explain;
pub(crate) mod files;
pub(crate) mod fuzz;
pub(crate) mod mended;
pub(crate) mod pieces;
pub(crate) mod planner;
pub(crate) mod stand_ins;
pub(crate) mod whole_rows;
