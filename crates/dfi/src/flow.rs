//! How a flow is declared (thesis, section 7.4.2).

use std::time::Duration;

use crate::declaration::{Declaration, FlowKind};
use crate::error::Result;
use crate::options::{Bandwidth, Detection, Gaps, OnLoss, Optimise, Route};
use crate::registry::Registry;
use crate::schema::Schema;
use crate::thread::Thread;

/// A flow, while it is declared. All parts but sources, targets and schema have defaults.
#[derive(Debug, Clone)]
#[must_use = "a flow exists when it is published"]
pub struct Flow {
    declaration: Declaration,
}

impl Flow {
    /// A flow whose tuples go to one target each.
    pub fn shuffle(name: &str) -> Flow {
        Flow { declaration: Declaration::new(name, FlowKind::Shuffle) }
    }

    /// A flow whose tuples go to every target. A route is accepted and means nothing, so that a
    /// shuffle becomes a replication by changing one line.
    pub fn replicate(name: &str) -> Flow {
        Flow { declaration: Declaration::new(name, FlowKind::Replicate) }
    }

    /// A flow to one target that aggregates ([`Combiner`](crate::Combiner)).
    pub fn combine(name: &str) -> Flow {
        Flow { declaration: Declaration::new(name, FlowKind::Combine) }
    }

    /// The source threads.
    pub fn sources(mut self, threads: impl IntoIterator<Item = Thread>) -> Flow {
        self.declaration.sources = threads.into_iter().collect();
        self
    }

    /// The target threads.
    pub fn targets(mut self, threads: impl IntoIterator<Item = Thread>) -> Flow {
        self.declaration.targets = threads.into_iter().collect();
        self
    }

    /// The schema of the tuples.
    pub fn schema(mut self, schema: Schema) -> Flow {
        self.declaration.schema = schema;
        self
    }

    /// The route; without one, by the hash of the first attribute.
    pub fn route(mut self, route: Route<'_>) -> Flow {
        self.declaration.route(route);
        self
    }

    /// The goal; without one, [`Bandwidth::default`].
    pub fn optimise(mut self, goal: impl Into<Optimise>) -> Flow {
        self.declaration.optimise = goal.into();
        self
    }

    /// How targets detect complete segments; by footers if this is not called.
    pub fn detection(mut self, detection: Detection) -> Flow {
        self.declaration.detection = detection;
        self
    }

    /// The treatment of lost ends; without it, the flow fails.
    pub fn on_loss(mut self, on_loss: OnLoss) -> Flow {
        self.declaration.on_loss = on_loss;
        self
    }

    /// Sends each segment of a replicate flow once, to a multicast group (thesis, section 7.5.4).
    /// The goal becomes [`Bandwidth::DATAGRAMS`], unless another goal was given. A segment has to
    /// fit a datagram.
    pub fn multicast(mut self) -> Flow {
        self.declaration.multicast = true;
        if self.declaration.optimise == Bandwidth::default().into() {
            self.declaration.optimise = Bandwidth::DATAGRAMS.into();
        }
        self
    }

    /// Makes all targets of a replicate flow consume all segments in one order (thesis, section
    /// 7.5.4). Sources number their segments by fetch-and-add at a word of target 0, the sequencer.
    pub fn ordered(mut self) -> Flow {
        self.declaration.ordered = true;
        self
    }

    /// The treatment of segments that an ordered multicast flow has lost; sent again if this is not
    /// called.
    pub fn gaps(mut self, gaps: Gaps) -> Flow {
        self.declaration.gaps = gaps;
        self
    }

    /// How long a segment of a multicast flow may be late before it counts as lost, 1 ms by
    /// default (the thesis gives no figure).
    pub fn time_out(mut self, time_out: Duration) -> Flow {
        self.declaration.time_out = time_out;
        self
    }

    /// How long a peer may be silent before it is lost, 750 ms by default. Providers may double it.
    pub fn silence(mut self, silence: Duration) -> Flow {
        self.declaration.silence = silence;
        self
    }

    /// Publishes the flow, so that its threads can join.
    ///
    /// # Errors
    /// The declaration is impossible ([`Error::Declaration`](crate::Error)), the name is taken, or
    /// the registry cannot be reached.
    pub fn publish(self, registry: &impl Registry) -> Result<()> {
        self.declaration.check()?;
        registry.publish(&self.declaration)
    }
}
