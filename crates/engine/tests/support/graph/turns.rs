//! In which order records of several sources come to an output.

use std::collections::BTreeSet;

use millstream_contract::plan::Node;

use super::{Graph, Kind, Stop};

impl Graph {
    /// The source of a split.
    pub(super) fn source_of(&self, split: usize) -> usize {
        let mut first = 0;
        let ends = self.origins.iter().map(|origin| {
            first += origin.chunks.len();
            first
        });
        ends.take_while(|end| *end <= split).count()
    }

    /// Whether records come to an output of this stage source by source: there are several, and
    /// nobody else takes any of them.
    pub(super) fn comes_by_source(&self, stage: usize) -> bool {
        let sources = self.sources_of(stage);
        let elsewhere = |source: &usize| {
            let of = |stage: usize| self.sources_of(stage).contains(source);
            let aggregates = |(stage, stop): (usize, &Stop)| {
                matches!(stop.kind, Kind::Aggregate { .. }) && self.takes_of(stage, *source)
            };
            let outputs = self.outputs.iter().filter(|output| of(output.stage)).count();
            outputs > 1 || self.stops.iter().enumerate().any(aggregates)
        };
        sources.len() > 1 && !sources.iter().any(elsewhere)
    }

    /// The sources whose records come out of a stage.
    fn sources_of(&self, stage: usize) -> BTreeSet<usize> {
        match self.stops[stage].kind {
            Kind::Aggregate { .. } => BTreeSet::new(),
            Kind::Pass { .. } => {
                (0..self.origins.len()).filter(|source| self.takes_of(stage, *source)).collect()
            }
        }
    }

    /// Whether records of a source come to a stage.
    fn takes_of(&self, stage: usize, source: usize) -> bool {
        self.stops[stage].takes.iter().any(|take| match take.from {
            Node::Source(from) | Node::Malformed(from) => from == source,
            Node::Stage(before) => self.sources_of(before).contains(&source),
        })
    }
}
