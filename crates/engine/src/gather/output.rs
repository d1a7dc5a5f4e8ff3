//! The description of an output: where its rows come from, and where they go.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;

use super::limit::Limit;
use super::turns::Turns;
use crate::edges::Root;
use crate::network::{Head, Kind, Net};
use crate::plan::Sort;
use millstream_operators::event_time::{BEGINNING, END};
use millstream_operators::stamped::BatchPlace;
use millstream_operators::windowing::Windowing;

/// An output, as its gather has to know it.
pub(crate) struct GatheredOutput {
    /// Its number.
    pub(crate) output: usize,
    pub(crate) schema: SchemaRef,
    /// By input: where its rows come from.
    pub(crate) inputs: Vec<Root>,
    /// Of the stages with state among them, each once, by number: how they divide event time.
    pub(crate) stages: Vec<(usize, Windowing)>,
    /// Of the sources among them.
    pub(crate) turns: Turns,
    pub(crate) offset: u64,
    pub(crate) limit: Option<u64>,
    pub(crate) sort: Option<Sort>,
    /// Whether the output alone causes no reading.
    pub(crate) side: bool,
    /// Leaders whose rows come here.
    pub(crate) leaders: usize,
    pub(crate) role: Role,
    /// The sink takes the rows of all workers as rows of worker 0.
    pub(crate) one_writer: bool,
}

/// Where rows go when a job has several processes.
pub(crate) enum Role {
    /// There is one process, or each has a sink of its own.
    Alone {
        /// The process is not the coordinator.
        elsewhere: bool,
    },
    /// Rows of all processes come here.
    Coordinator(Arc<Net>),
    /// Rows go to the coordinator.
    Helper {
        net: Arc<Net>,
        /// Bytes that may be sent ahead of their turn.
        ahead_bytes_max: u64,
    },
}

impl Role {
    /// Whether rows are written here, in another process than the coordinator.
    pub(super) fn is_alone_elsewhere(&self) -> bool {
        matches!(self, Role::Alone { elsewhere: true })
    }
}

impl GatheredOutput {
    /// The index of a stage among those whose rows come here.
    pub(super) fn place_of(&self, stage: usize) -> Option<usize> {
        self.stages.iter().position(|(of, _)| *of == stage)
    }

    /// How the stage divides event time whose rows are an input.
    pub(super) fn windowing_of(&self, input: usize) -> Option<&Windowing> {
        let Some(Root::Stage(stage)) = self.inputs.get(input) else { return None };
        Some(&self.stages[self.place_of(*stage)?].1)
    }

    /// LIMIT and OFFSET.
    pub(super) fn limits(&self) -> Limit {
        match &self.sort {
            Some(sort) => Limit::new(sort.offset, sort.limit),
            None => Limit::new(self.offset, self.limit),
        }
    }

    /// Whether the result has an order of its own, for which all of its rows must be there.
    pub(super) fn sorts(&self) -> bool {
        self.sort.as_ref().is_some_and(|sort| !sort.each_window)
    }

    /// The watermark up to which every leader has fired what is complete of all stages; `of` has
    /// the watermark of each. Windows that fire at the end are not waited for before.
    pub(super) fn fired_of_all(&self, of: impl Fn(usize) -> i64) -> i64 {
        let stages = self.stages.iter().enumerate();
        let fired = stages.map(|(place, (_, windowing))| match of(place) {
            fired if windowing.is_whole() && fired < END => END - 1,
            fired => fired,
        });
        fired.min().unwrap_or(BEGINNING)
    }

    /// The head of a message about a batch of records.
    pub(super) fn head(&self, place: BatchPlace, kind: Kind) -> Head {
        Head {
            output: self.output as u16,
            id: place.split as u32,
            number: place.sequence,
            count: place.part,
            ..Head::new(kind)
        }
    }
}
