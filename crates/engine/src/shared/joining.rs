//! New splits of tables that grow while the job runs: the coordinator asks the tables, gives each
//! new split to a process, and tells all. The process opens the split, which may take long.

use super::Shared;
use crate::error::{Error, Result};
use crate::network::{Head, Kind};
use crate::table::{AddedSplits, SplitSpec};

impl Shared {
    /// Looks for new splits, and opens those that this process is to read. May wait for sources.
    pub(crate) fn look_for_splits(&self) -> Result<()> {
        if self.net.as_ref().is_none_or(|net| net.is_coordinator()) {
            for growing in &self.joins.growing {
                let source = growing.source;
                let mut state = self.joins.lock();
                let names = || self.intake.splits_of(source).map(|split| self.intake.name(split));
                let known = state.known.entry(source);
                let known = known.or_insert_with(|| names().map(str::to_string).collect());
                let added = growing.table.added_splits(&|name: &str| known.contains(name))?;
                drop(state);
                if let AddedSplits::New(added) = added {
                    added.into_iter().try_for_each(|spec| self.give(source, spec))?;
                }
            }
        }
        loop {
            let next = self.joins.lock().to_open.pop_front();
            let Some((split, spec)) = next else { return Ok(()) };
            if let Err(error) = self.open_split(split, &spec) {
                // A source may be away for a while, and the splits that are read go on.
                let mut state = self.joins.lock();
                state.to_open.push_front((split, spec));
                if !std::mem::replace(&mut state.told, true) {
                    let line = format!("a new split cannot be opened, and is tried again: {error}");
                    self.intake.notices().tell(line);
                }
                return Ok(());
            }
        }
    }

    /// Gives a new split to a process.
    fn give(&self, source: usize, spec: SplitSpec) -> Result<()> {
        if !self.joins.lock().known.entry(source).or_default().insert(spec.name.clone()) {
            return Ok(());
        }
        let (table, name) = (self.intake.table(source), spec.name.as_str());
        let is_free = |split: &usize| self.intake.name(*split).is_empty();
        let spare = self.intake.spare_splits(source).find(is_free);
        let Some((split, process)) = spare.and_then(|at| Some((at, self.intake.reader_of(at)?)))
        else {
            self.intake.notices().tell(format!(
                "table '{table}': {name} is new, and this run does not read it: stop the job and \
                 start it again"
            ));
            return Ok(());
        };
        let from = match self.checkpoints.is_some() {
            true => "the next checkpoint",
            false => "now",
        };
        let line = format!("table '{table}': {name} is new, and is read from {from} on");
        self.intake.notices().tell(line);
        self.intake.note_joined(split, name);
        if let Some(net) = &self.net {
            let body = serde_json::to_vec(&spec)
                .map_err(|error| Error::Internal(format!("a new split: {error}")))?;
            let head = Head { id: split as u32, number: process as u64, ..Head::new(Kind::Join) };
            for to in 1..net.place.processes {
                net.post(to, head, body.clone())?;
            }
        }
        self.take_new_split(split, spec, process)
    }

    /// A new split has been given to a process.
    fn take_new_split(&self, split: usize, spec: SplitSpec, process: usize) -> Result<()> {
        let own = self.net.as_ref().map_or(0, |net| net.place.process);
        if process == own && self.intake.begin_to_open(split)? {
            self.joins.lock().to_open.push_back((split, spec));
        }
        Ok(())
    }

    /// The coordinator has given a new split to a process.
    pub(super) fn note_join(&self, head: &Head, body: &[u8]) -> Result<()> {
        let split = self.intake.checked(head)?;
        if !self.intake.spare_splits(self.intake.source_of(split)).any(|spare| spare == split) {
            return Err(Error::Internal(format!("split {split} joins, which is there already")));
        }
        let spec: SplitSpec = serde_json::from_slice(body)
            .map_err(|error| Error::Internal(format!("a new split: {error}")))?;
        self.intake.note_joined(split, &spec.name);
        self.take_new_split(split, spec, head.number as usize)
    }

    fn open_split(&self, split: usize, spec: &SplitSpec) -> Result<()> {
        let source = self.intake.source_of(split);
        let growing = self.joins.growing.iter().find(|growing| growing.source == source);
        let missing = || Error::Internal(format!("a new split of source {source}, {}", spec.name));
        let growing = growing.ok_or_else(missing)?;
        let table = growing.table.with_splits(std::slice::from_ref(spec)).ok_or_else(missing)?;
        let mut opened = table.open(&growing.projection, &growing.options)?;
        let new = opened.pop().filter(|_| opened.is_empty()).ok_or_else(missing)?;
        self.intake.install(split, new, self.checkpoints.is_some())
    }

    /// Whether the cut that begins may have new splits. Not while rows are computed again that an
    /// earlier run has written without them.
    pub(super) fn cut_has_joins(&self) -> bool {
        !self.joins.is_empty() && !self.gathers.iter().any(|gather| gather.sink().replays())
    }
}
