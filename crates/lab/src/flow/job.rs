//! Jobs of processes: the published flows, and the part of each process.

use millstream_dfi::{LocalRegistry, RegistryClient};
use millstream_fabric::shm::ShmDevice;
use serde::{Deserialize, Serialize};

use super::combining::CombinePlan;
use super::failure::FlowResult;
use super::join::JoinPlan;
use super::mover::FlowPlan;
use super::part::Part;
use super::ping::PingPlan;
use super::{combining, join, moving, ping};

/// A run of several processes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum Job {
    /// Tuples are moved.
    Move(FlowPlan),
    /// Tuples go there and back.
    Ping(PingPlan),
    /// Tuples are aggregated.
    Combine(CombinePlan),
    /// Two relations are joined.
    Join(JoinPlan),
}

impl Job {
    /// Publishes the flows.
    pub(super) fn publish(&self, registry: &LocalRegistry) -> FlowResult<()> {
        match self {
            Job::Move(plan) => Ok(plan.flow().publish(registry)?),
            Job::Ping(plan) => plan.publish(registry),
            Job::Combine(plan) => plan.publish(combining::FLOW, registry),
            Job::Join(plan) => plan.publish(registry),
        }
    }

    /// How many processes it takes.
    pub(super) fn processes(&self) -> usize {
        match self {
            Job::Move(plan) => plan.nodes(),
            Job::Ping(plan) => plan.processes,
            Job::Combine(plan) => plan.processes,
            Job::Join(plan) => plan.processes,
        }
    }

    /// Joins the flows as the threads of a process.
    pub(super) fn join(
        &self,
        process: u32,
        device: &ShmDevice,
        registry: &RegistryClient,
    ) -> FlowResult<Box<dyn Part>> {
        match self {
            Job::Move(plan) => moving::join(plan, process, device, registry),
            Job::Ping(plan) => ping::join(plan, process, device, registry),
            Job::Combine(plan) => combining::join(plan, process, device, registry),
            Job::Join(plan) => join::join(plan, process, device, registry),
        }
    }
}
