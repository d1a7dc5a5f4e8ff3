//! Which sources a worker may take of: those whose rows all who take them have credit, memory and
//! room for.

use super::firing::Fired;
use super::pressure::STALL_US;
use super::{State, Step, Worker};
use crate::delivery::{Hold, Seal};
use crate::error::Result;
use crate::flow::Feeds;
use crate::intake::Only;

/// What a worker may take.
pub(super) struct Gates {
    /// By source.
    pub(super) only: Vec<Only>,
    /// If nothing else happens it has to look again then: somebody lacks room.
    pub(super) look_again_us: Option<i64>,
}

/// Why a source has to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wait {
    /// Nobody wants its rows.
    Unwanted,
    /// This worker takes none.
    NoInput,
    /// Leaders have too much to merge.
    Credit,
    Memory,
    /// Result rows that came before have to be written first.
    Room,
}

impl Worker {
    /// Which sources may be taken of; what the step comes to if none may.
    pub(super) fn gates(
        &mut self,
        stages: &mut [State],
        tight: bool,
    ) -> Result<std::result::Result<Gates, Step>> {
        let shared = self.context.shared.clone();
        let sources = &shared.flow.sources;
        let waits = |feeds: &Feeds| self.waits_for(stages, feeds, Hold::Leader);
        let mut waits: Vec<Option<Wait>> = sources.iter().map(waits).collect::<Result<_>>()?;
        if let Some(step) = self.waits_for_all(stages, &waits) {
            return Ok(Err(step));
        }
        if tight {
            if self.lightens(stages)? {
                return Ok(Err(Step::Busy));
            }
            let others_can_give = self.context.others_can_give(0);
            for (wait, feeds) in waits.iter_mut().zip(sources).filter(|(wait, _)| wait.is_none()) {
                let of_group = |stage: usize| {
                    let group = sources.iter().filter(|other| other.group == feeds.group);
                    group.into_iter().any(|other| other.later.contains(&stage))
                };
                let waits = others_can_give || !shared.settled(&self.context.lows, of_group);
                *wait = waits.then_some(Wait::Memory);
            }
            if let Some(step) = self.waits_for_all(stages, &waits) {
                return Ok(Err(step));
            }
        }
        for (wait, feeds) in waits.iter_mut().zip(sources).filter(|(wait, _)| wait.is_none()) {
            *wait = self.waits_for(stages, feeds, Hold::Slot)?;
        }
        let usual = if tight { Only::Lowest } else { Only::Any };
        let mut only = vec![usual; sources.len()];
        if !self.find_room(&mut only, &mut waits)? {
            return Ok(Err(Step::Busy));
        }
        if let Some(step) = self.waits_for_all(stages, &waits) {
            return Ok(Err(step));
        }
        let soon = |wait: &Option<Wait>| matches!(wait, Some(Wait::Memory | Wait::Room));
        let blocked = self.blocked.contains(&Fired::NoMemory);
        let soon = blocked || waits.iter().any(soon);
        self.context.stats.credit_stalls += u64::from(waits.contains(&Some(Wait::Credit)));
        for (only, wait) in only.iter_mut().zip(&waits) {
            *only = if wait.is_some() { Only::Nothing } else { *only };
        }
        let look_again_us = soon.then(|| shared.env.now_us() + STALL_US);
        Ok(Ok(Gates { only, look_again_us }))
    }

    /// What a source has to wait for so that stages that it feeds, or later ones, get on; of what
    /// holds stages up for lack of credit, for so much of it.
    fn waits_for(&self, stages: &[State], feeds: &Feeds, credit: Hold) -> Result<Option<Wait>> {
        if !self.context.shared.is_wanted(feeds) {
            return Ok(Some(Wait::Unwanted));
        }
        let fired = |what| feeds.later.iter().any(|stage| self.blocked[*stage] == what);
        if fired(Fired::NoMemory) {
            return Ok(Some(Wait::Memory));
        }
        if fired(Fired::NoCredit) {
            return Ok(Some(Wait::Credit));
        }
        for stage in &feeds.stages {
            match self.delivery.hold(&self.context, &stages[*stage])? {
                Some(Hold::NoInput) => return Ok(Some(Wait::NoInput)),
                Some(Hold::Memory) => return Ok(Some(Wait::Memory)),
                Some(hold) if hold == credit => return Ok(Some(Wait::Credit)),
                _ => {}
            }
        }
        Ok(None)
    }

    /// What the step comes to if all sources have to wait.
    fn waits_for_all(&mut self, stages: &[State], waits: &[Option<Wait>]) -> Option<Step> {
        if waits.contains(&None) || waits.iter().all(|wait| *wait == Some(Wait::Unwanted)) {
            return None;
        }
        if waits.contains(&Some(Wait::Memory)) {
            return Some(self.stall(stages));
        }
        if waits.contains(&Some(Wait::Room)) {
            let soon = self.context.shared.env.now_us() + STALL_US;
            return Some(self.pause(stages, Some(soon)));
        }
        self.context.stats.credit_stalls += u64::from(waits.contains(&Some(Wait::Credit)));
        Some(self.pause(stages, None))
    }

    /// Memory is tight: ends the epoch of the last stage that holds rows for others, since what
    /// leaders have merged takes less room than what waits in fragments. False if none does.
    fn lightens(&mut self, stages: &mut [State]) -> Result<bool> {
        let mut last_first = stages.iter_mut().rev();
        if let Some(state) = last_first.find(|state| state.slices.has_fragment_rows()) {
            self.delivery.end_epoch(&mut self.context, state, Seal::Everything)?;
            return Ok(true);
        }
        self.delivery.hurry(&self.context, None, false)?;
        Ok(false)
    }

    /// Where outputs have no room for more rows of records, only those may come that the others
    /// wait for. False if something has been done towards that.
    fn find_room(&self, only: &mut [Only], waits: &mut [Option<Wait>]) -> Result<bool> {
        let shared = &self.context.shared;
        let takes = |gather: &&crate::gather::Gather| gather.takes_batches() && !gather.has_ended();
        for gather in shared.gathers.iter().filter(takes) {
            let congested = gather.is_congested();
            let mut awaited = Vec::new();
            if !congested && gather.is_full() {
                let ended = shared.intake.ended_splits();
                shared.ends(gather.output(), gather.write_batches(self.context.id, &ended))?;
                awaited = gather.awaited_chunks();
            }
            // Where there is no such split, all have to wait.
            let mut ones = Vec::new();
            for &(sequence, split) in &awaited {
                let sent = gather.is_sent((sequence, split));
                if !sent && shared.intake.has_chunk(split, sequence) {
                    ones.push(split);
                } else if shared.intake.look_for_end(split, sequence)? {
                    return Ok(false);
                }
            }
            if !congested && awaited.is_empty() {
                continue;
            }
            let feeds = shared.flow.sources.iter().enumerate();
            let of_output = feeds.filter(|(_, feeds)| feeds.outputs.contains(&gather.output()));
            for (source, _) in of_output {
                if waits[source].is_some() {
                    continue;
                }
                let of_source = |split: &usize| shared.intake.source_of(*split) == source;
                let split = ones.iter().copied().find(of_source);
                let other = |split| matches!(only[source], Only::Split(one) if one != split);
                match split {
                    Some(split) if !other(split) => only[source] = Only::Split(split),
                    _ => waits[source] = Some(Wait::Room),
                }
            }
        }
        Ok(true)
    }
}
