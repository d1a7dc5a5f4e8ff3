//! The part of a process in a measured run.

use std::sync::atomic::AtomicBool;

use millstream_dfi::RegistryClient;
use serde_json::Value;

use super::failure::FlowResult;

/// A process's part in a run. Its flows are joined.
pub(super) trait Part {
    /// Connects, once all processes have joined.
    fn connect(&mut self, registry: &RegistryClient) -> FlowResult<()>;

    /// Runs to the end. Returns what process 0 has to know.
    fn run(&mut self, stopped: &AtomicBool) -> FlowResult<Value>;
}
