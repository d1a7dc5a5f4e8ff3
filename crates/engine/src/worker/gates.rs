//! Which sources a worker may take of: those whose rows all who take them have credit, memory and
//! room for.

use super::firing::Fired;
use super::pressure::STALL_US;
use super::{State, Step, Worker};
use crate::delivery::{Hold, Seal};
use crate::edges::Feeds;
use crate::error::Result;
use crate::gather::{ChunkAt, Gather};
use crate::intake::Admitted;
use crate::observe::Doing;
use millstream_operators::event_time::END;

/// What a worker may take.
pub(super) struct Gates {
    /// By source.
    pub(super) only: Vec<Admitted>,
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
        let sources = &shared.edges.sources;
        let unwanted = |feeds: &Feeds| (!shared.is_wanted(feeds)).then_some(Wait::Unwanted);
        let mut waits: Vec<Option<Wait>> = sources.iter().map(unwanted).collect();
        let usual = if tight { Admitted::Lowest } else { Admitted::All };
        let mut only = vec![usual; sources.len()];
        if !self.find_room(&mut only, &mut waits)? {
            return Ok(Err(Step::Busy));
        }
        self.note_waits(stages, &only, &mut waits, Hold::Leader)?;
        if let Some(step) = self.waits_for_all(stages, &waits) {
            return Ok(Err(step));
        }
        if tight {
            if self.lightens(stages)? {
                return Ok(Err(Step::Busy));
            }
            self.note_unsettled(&only, &mut waits);
            if waits.contains(&Some(Wait::Memory)) && shared.intake.look_at_idle()? {
                return Ok(Err(Step::Busy));
            }
            if let Some(step) = self.waits_for_all(stages, &waits) {
                return Ok(Err(step));
            }
        }
        self.note_waits(stages, &only, &mut waits, Hold::Slot)?;
        if let Some(step) = self.waits_for_all(stages, &waits) {
            return Ok(Err(step));
        }
        let soon = |wait: &Option<Wait>| matches!(wait, Some(Wait::Memory | Wait::Room));
        let blocked = self.blocked.contains(&Fired::NoMemory);
        let soon = blocked || waits.iter().any(soon);
        self.context.stats.credit_stalls += u64::from(waits.contains(&Some(Wait::Credit)));
        for (only, wait) in only.iter_mut().zip(&waits) {
            if wait.is_some() {
                *only = Admitted::Nothing;
            }
        }
        let look_again_us = soon.then(|| shared.env.now_us() + STALL_US);
        Ok(Ok(Gates { only, look_again_us }))
    }

    /// Notes what sources have to wait for so that stages that they feed, or later ones, get on; of
    /// what holds stages up for lack of credit, for so much of it. Chunks that outputs await do not
    /// wait for others, who may wait for the outputs.
    fn note_waits(
        &self,
        stages: &[State],
        only: &[Admitted],
        waits: &mut [Option<Wait>],
        credit: Hold,
    ) -> Result<()> {
        let sources = self.context.shared.edges.sources.iter().zip(only).zip(waits);
        for ((feeds, only), wait) in sources.filter(|(_, wait)| wait.is_none()) {
            let waits = self.waits_for(stages, feeds, credit)?;
            let awaited = matches!(only, Admitted::Awaited(_));
            *wait = waits.filter(|wait| *wait == Wait::NoInput || !awaited);
        }
        Ok(())
    }

    /// What the rows of a source have to wait for.
    fn waits_for(&self, stages: &[State], feeds: &Feeds, credit: Hold) -> Result<Option<Wait>> {
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

    /// Memory is tight: notes which sources have to wait until what is complete has been fired, or
    /// until others have given back what they keep.
    fn note_unsettled(&self, only: &[Admitted], waits: &mut [Option<Wait>]) {
        let shared = &self.context.shared;
        let sources = &shared.edges.sources;
        let others_can_give = self.context.others_can_give(0);
        for ((feeds, only), wait) in sources.iter().zip(only).zip(waits) {
            if wait.is_some() || matches!(only, Admitted::Awaited(_)) {
                continue;
            }
            let of_group = sources.iter().zip(&self.context.lows);
            let of_group = of_group.filter(|(other, _)| other.group == feeds.group);
            let low = of_group.map(|(_, low)| *low).min().unwrap_or(END);
            let waits = others_can_give || !shared.settled(feeds.group, low);
            *wait = waits.then_some(Wait::Memory);
        }
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
            self.doing = Doing::Output;
            let soon = self.context.shared.env.now_us() + STALL_US;
            return Some(self.pause(stages, Some(soon)));
        }
        if waits.contains(&Some(Wait::Credit)) {
            self.context.stats.credit_stalls += 1;
            self.doing = Doing::Credit;
        }
        Some(self.pause(stages, None))
    }

    /// Memory is tight: ends the epoch of the last stage that holds rows for others, since what
    /// leaders have merged takes less room than what waits in fragments. False if none does.
    fn lightens(&mut self, stages: &mut [State]) -> Result<bool> {
        let mut last_first = stages.iter_mut().rev();
        if let Some(state) = last_first.find(|state| state.operator.holds_for_others()) {
            self.delivery.end_epoch(&mut self.context, state, Seal::Everything)?;
            return Ok(true);
        }
        self.delivery.hurry(&self.context, None, false)?;
        Ok(false)
    }

    /// Where outputs have no room for more rows of records, only those may come that the others
    /// wait for: also to other outputs that have no room, or two of them would wait for each other.
    /// False if something has been done towards that.
    fn find_room(&self, only: &mut [Admitted], waits: &mut [Option<Wait>]) -> Result<bool> {
        let shared = &self.context.shared;
        let takes = |gather: &&Gather| gather.takes_batches() && !gather.has_ended();
        let mut awaited = Vec::new();
        // By source: whether there is no room for what comes of it.
        let (mut congested, mut full) = (vec![false; waits.len()], vec![false; waits.len()]);
        for gather in shared.gathers.iter().filter(takes) {
            let sources = shared.edges.sources.iter().enumerate();
            let sources = sources.filter(|(_, feeds)| feeds.outputs.contains(&gather.output()));
            if gather.is_congested() {
                sources.for_each(|(source, _)| congested[source] = true);
            } else {
                let own = match gather.is_full() {
                    true => self.awaited_by(gather),
                    false => Vec::new(),
                };
                sources.for_each(|(source, _)| full[source] |= !own.is_empty());
                let requested = gather.requested().into_iter().map(|chunk| (chunk, false));
                let own = own.into_iter().map(|chunk| (chunk, true));
                for ((sequence, split), is_own) in own.chain(requested) {
                    let sent = gather.is_sent((sequence, split));
                    if !sent && shared.intake.has_chunk(split, sequence) {
                        awaited.push(split);
                    } else if shared.intake.look_for_end(split, sequence)? {
                        return Ok(false);
                    } else if is_own && !sent {
                        gather.request((sequence, split))?;
                    }
                }
            }
        }
        for (source, wait) in waits.iter_mut().enumerate().filter(|(_, wait)| wait.is_none()) {
            let of_source = |split: &&usize| shared.intake.source_of(**split) == source;
            let ones: Vec<usize> = awaited.iter().filter(of_source).copied().collect();
            if congested[source] || full[source] && ones.is_empty() {
                // Where there is no such split, all have to wait.
                *wait = Some(Wait::Room);
            } else if !ones.is_empty() {
                only[source] = Admitted::Awaited(ones);
            }
        }
        Ok(true)
    }

    /// The chunks that rows of an output wait for, when those have been queued that need not.
    fn awaited_by(&self, gather: &Gather) -> Vec<ChunkAt> {
        gather.queue_batches(&self.context.shared.intake.ended_splits());
        gather.awaited_chunks()
    }
}
