//! Opening of a job's sources, and of the sinks of its outputs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::compile::Compiled;
use crate::checkpoint::Resume;
use crate::edges::{Feeds, Root};
use crate::error::{Error, Result};
use crate::gather::{Begun, Gather, GatheredOutput, Role, Turns};
use crate::intake::{Intake, Origin, table_names};
use crate::network::Net;
use crate::plan::{Operator, Plan, Source};
use crate::pruning::Pruning;
use crate::roles::{Place, Reading};
use crate::settings::{Exchange, Settings};
use crate::shared::Growing;
use crate::sink::{RowOrder, Sink, Writers};
use crate::table::{
    AddedSplits, OpenOptions, Positions, ShownName, SideFiles, SourceMarks, Split, Table,
};
use millstream_operators::budget::Budget;
use millstream_operators::event_time::BEGINNING;
use millstream_operators::prepare::Preparer;

/// How many splits may join a table that may grow, in one run.
const SPARE_SPLITS: usize = 64;

/// The sources of a plan, about to be opened.
pub(super) struct Opening<'a> {
    pub(super) plan: &'a Plan,
    pub(super) compiled: &'a Compiled,
    pub(super) settings: &'a Settings,
    pub(super) sinks: &'a [Arc<dyn Sink>],
}

impl Opening<'_> {
    /// Opens the sources in the process at `place`. Also returns the tables that may grow.
    pub(super) fn origins(
        &self,
        (place, reading): (Place, Reading),
        start_time_us: i64,
        resume: &Resume,
        checkpoints: bool,
    ) -> Result<(Vec<Origin>, Vec<Growing>)> {
        let Opening { plan, settings, .. } = self;
        if self.sinks.len() != plan.outputs.len() {
            return Err(Error::Internal("a job with more or fewer sinks than outputs".into()));
        }
        let leaders = place.processes * settings.workers;
        let options = OpenOptions {
            batch_rows: settings.batch_rows,
            start_time_us,
            workers: leaders,
            process: place.process,
            processes: place.processes,
            reader: (reading.process, reading.processes),
            from: Positions::new(),
            checkpoints,
            ended: BTreeSet::new(),
            shown: ShownName::default(),
            pruning: Pruning::default(),
            conditions: Vec::new(),
            dictionaries: Vec::new(),
            memory_bytes: settings.memory_bytes,
        };
        // No table is waited for before all have been begun.
        let begin = |source: &Source| source.table.begin(&options).unwrap_or(source.table.clone());
        let tables: Vec<Arc<dyn Table>> = plan.sources.iter().map(begin).collect();
        let names = table_names(plan.sources.iter().map(|source| source.name.as_str()));
        let mut growing = Vec::new();
        let origin = |(number, table): (usize, Arc<dyn Table>)| {
            let from = resume.marks.get(&names[number]).cloned();
            let (origin, grows) = self.origin(number, table, from, &options, &resume.frontiers)?;
            growing.extend(grows);
            Ok(origin)
        };
        let origins = tables.into_iter().enumerate().map(origin).collect::<Result<_>>()?;
        Ok((origins, growing))
    }

    /// Opens a source, which goes on where an earlier job stood.
    fn origin(
        &self,
        number: usize,
        table: Arc<dyn Table>,
        from: Option<SourceMarks>,
        options: &OpenOptions,
        frontiers: &[i64],
    ) -> Result<(Origin, Option<Growing>)> {
        let Opening { plan, compiled, settings, .. } = self;
        let source = &plan.sources[number];
        let later = &compiled.edges.sources[number].later;
        let from = from.or_else(|| new_source(later, frontiers));
        let max_ahead_us = settings.max_ahead.us(source.table.live());
        let spreads = compiled.spreads(number, settings, options.workers);
        let options = OpenOptions {
            pruning: plan.pruning(number),
            conditions: plan.conditions(number),
            dictionaries: plan.dictionaries(number),
            ..options.clone().for_columns(&table.schema(), &source.projection)
        };
        let grows = settings.exchange == Exchange::LateMerge
            && table.splits_are_apart()
            && matches!(table.added_splits(&|_| true)?, AddedSplits::New(_));
        let first = OpenOptions {
            from: from.as_ref().map(SourceMarks::positions).unwrap_or_default(),
            ended: from.as_ref().map(SourceMarks::ended).unwrap_or_default(),
            ..options.clone()
        };
        let mut splits = table.open(&source.projection, &first)?;
        if let Some(from) = from.as_ref().filter(|from| grows && !from.splits.is_empty()) {
            // What has come meanwhile joins with a cut, as it would have without the restart.
            splits.retain(|split| from.splits.contains_key(split.name()));
        }
        if let Some(from) = from.as_ref().filter(|_| !grows && table.splits_are_apart()) {
            self.check_replayed(&source.name, &splits, from)?;
        }
        let spare = if grows && !self.has_fixed_order(number) { SPARE_SPLITS } else { 0 };
        let origin = Origin {
            name: source.name.clone(),
            about: table.describe(&source.projection),
            bounded: table.bounded(),
            live: table.live(),
            splits,
            spare,
            from,
            preparer: Preparer::new(source, max_ahead_us, spreads)
                .with_arrays(compiled.arrays(number))
                .with_log_alone(self.computes_again())
                .with_lateness(settings.allowed_lateness_us)
                .with_rows_max(settings.batch_rows),
            idle_timeout_us: source
                .event_time
                .as_ref()
                .and_then(|time| time.idle_timeout_us)
                .or_else(|| table.has_senders().then_some(i64::MAX)),
            windowings: compiled.windowings(number),
            group: compiled.edges.sources[number].group,
        };
        let projection = source.projection.clone();
        let growing = Growing { source: number, table, projection, options };
        Ok((origin, grows.then_some(growing)))
    }

    /// Rows that an output has already are computed again, and found by their order. Records of a
    /// split that the earlier job did not have would come between them.
    fn check_replayed(
        &self,
        source: &str,
        splits: &[Box<dyn Split>],
        from: &SourceMarks,
    ) -> Result<()> {
        let mut names = splits.iter().map(|split| split.name());
        let new = names.find(|name| !from.splits.contains_key(*name));
        match new.filter(|_| !from.splits.is_empty()) {
            Some(name) if self.computes_again() => Err(Error::Io {
                place: format!("table {source}"),
                message: format!(
                    "'{name}' has come since the last checkpoint; its records would come \
                         between rows that an output has already and that are computed again"
                ),
                help: "let the table look for new partitions itself, so that they join at a \
                           checkpoint; or start the job anew"
                    .into(),
            }),
            _ => Ok(()),
        }
    }

    /// Whether rows that an output has already are computed again after a crash.
    fn computes_again(&self) -> bool {
        self.sinks.iter().any(|sink| sink.waits_for_checkpoint())
    }

    /// Whether rows of a source's records are written without windows to an output that finds rows
    /// of an earlier run by their order: records of several splits would have no order.
    fn has_fixed_order(&self, source: usize) -> bool {
        let outputs = self.compiled.edges.outputs.iter().zip(self.sinks);
        let reads = |root: &Root| *root == Root::Source(source);
        let mut ordered = outputs.filter(|(_, sink)| sink.waits_for_checkpoint());
        ordered.any(|(roots, _)| roots.iter().any(reads))
    }
}

/// Where a source begins that the earlier job did not read: behind the windows that have fired in
/// the stages that depend on it. `None`: nothing has fired.
fn new_source(later: &[usize], frontiers: &[i64]) -> Option<SourceMarks> {
    let fired = later.iter().filter_map(|stage| frontiers.get(*stage)).max();
    let low_us = fired.copied().filter(|fired| *fired > BEGINNING)?;
    Some(SourceMarks { low_us, splits: BTreeMap::new() })
}

/// Reads the side tables of all lookups. Returns remarks for the user, also on changes of files
/// since an earlier job has read them (`before`). `starts_us`: of the job and of this run.
pub(super) fn load_lookups(
    compiled: &Compiled,
    settings: &Settings,
    starts_us: (i64, i64),
    budget: &Arc<Budget>,
    before: &BTreeMap<String, SideFiles>,
) -> Result<Vec<String>> {
    let mut remarks = Vec::new();
    for lookup in &compiled.edges.lookups {
        remarks.extend(lookup.load(settings, starts_us, budget)?);
    }
    let now = compiled.edges.side_files();
    let of_both = before.iter().filter_map(|(name, files)| changed(name, files, now.get(name)?));
    remarks.extend(of_both);
    Ok(remarks)
}

/// A remark names so many changed files.
const CHANGED_MAX: usize = 3;

/// Remark on a side table whose files have changed.
fn changed(name: &str, before: &SideFiles, now: &SideFiles) -> Option<String> {
    let is_gone = |file: &&String| !now.contains_key(*file);
    let gone = before.keys().filter(is_gone).map(|file| format!("{file} is gone"));
    let come = now.iter().filter_map(|(file, is)| match before.get(file) {
        None => Some(format!("{file} is new")),
        Some(was) => (was != is).then(|| format!("{file} was written")),
    });
    let mut changes: Vec<String> = come.chain(gone).collect();
    let more = changes.len().saturating_sub(CHANGED_MAX);
    changes.truncate(CHANGED_MAX);
    changes.extend((more > 0).then(|| format!("and {more} more")));
    let changes = changes.join(", ");
    (!changes.is_empty())
        .then(|| format!("lookup table '{name}' has changed since the checkpoint: {changes}"))
}

/// Remarks for the user on the reading of splits.
pub(super) fn remarks_of(origins: &[Origin]) -> Vec<String> {
    let splits = origins.iter().flat_map(|origin| &origin.splits);
    splits.filter_map(|split| split.remark().map(str::to_string)).collect()
}

/// The outputs of a plan, about to be opened.
pub(super) struct Outputs<'a> {
    pub(super) plan: &'a Plan,
    pub(super) compiled: &'a Compiled,
    pub(super) settings: &'a Settings,
    pub(super) intake: &'a Intake,
    pub(super) from: &'a Resume,
}

impl Outputs<'_> {
    /// Opens the sinks that this process writes to.
    pub(super) fn open(
        &self,
        sinks: Vec<Arc<dyn Sink>>,
        net: &Option<Arc<Net>>,
        budget: &Arc<Budget>,
    ) -> Result<Vec<Gather>> {
        let sinks = sinks.into_iter().enumerate();
        sinks.map(|(output, sink)| self.open_one(output, sink, net, budget)).collect()
    }

    fn open_one(
        &self,
        output: usize,
        sink: Arc<dyn Sink>,
        net: &Option<Arc<Net>>,
        budget: &Arc<Budget>,
    ) -> Result<Gather> {
        let (stage, sort) = (self.plan.output(output)?, self.plan.outputs[output].sort.clone());
        let (limit, offset) = match &stage.operator {
            Operator::Stateless { limit, offset } => (*limit, *offset),
            _ => (None, 0),
        };
        if sort.is_some() && (limit, offset) != (None, 0) {
            return Err(Error::Internal("an order of what a LIMIT lets through".into()));
        }
        let workers = self.settings.workers;
        let place = net.as_ref().map_or(Place { process: 0, processes: 1 }, |net| net.place);
        // The row of a group without records is one, whatever the number of processes; LIMIT counts
        // the rows of all.
        let limits = limit.is_some() || offset > 0 || sort.is_some();
        let one_result = self.compiled.has_empty_group(output) || limits;
        let elsewhere = place.process > 0;
        let role = match net {
            None => Role::Alone { elsewhere },
            Some(_) if sink.is_local() && sink.order() == RowOrder::Any && !one_result => {
                Role::Alone { elsewhere }
            }
            Some(net) if net.is_coordinator() => Role::Coordinator(net.clone()),
            Some(net) => {
                let ahead_bytes_max = self.settings.memory_bytes / 4 / place.processes as u64;
                Role::Helper { net: net.clone(), ahead_bytes_max }
            }
        };
        // What comes together anyway is written as if by one.
        let one_writer = one_result || matches!(role, Role::Coordinator(_));
        if !matches!(role, Role::Helper { .. }) {
            let workers = if one_writer { 1 } else { workers };
            let visible = sort.as_ref().map_or(stage.output.fields().len(), |sort| sort.visible);
            let visible = Arc::new(stage.output.project(&(0..visible).collect::<Vec<_>>())?);
            let memory_bytes = self.settings.memory_bytes;
            let notices = self.intake.notices().clone();
            sink.listen(Arc::new(move |line| notices.tell(line)));
            sink.open(&visible, Writers { process: place.process, workers, memory_bytes })?;
        }
        let all = place.processes * workers;
        let stages = self.compiled.stages_of(output).into_iter();
        let output = GatheredOutput {
            output,
            schema: stage.output.clone(),
            inputs: self.compiled.edges.outputs[output].clone(),
            stages: stages.map(|stage| (stage, self.compiled.windowing(stage))).collect(),
            turns: self.turns_of(output),
            offset,
            limit,
            sort,
            side: self.plan.outputs[output].side,
            leaders: if matches!(role, Role::Coordinator(_)) { all } else { workers },
            role,
            one_writer,
        };
        let gather = Gather::new(output, sink, budget.clone());
        if !self.from.marks.is_empty() {
            let (names, chunks) = (self.intake.split_names(), self.intake.chunks_taken());
            let ended = self.intake.ended_splits();
            let begun = Begun { names: &names, chunks: &chunks, ended: &ended };
            gather.resume(self.from.outputs.get(gather.output()), &begun)?;
        }
        Ok(gather)
    }

    /// Whose turn it is among the splits of all sources whose records come to an output.
    fn turns_of(&self, output: usize) -> Turns {
        let edges = &self.compiled.edges;
        let of = |root: &Root| match root {
            Root::Source(source) => Some(*source),
            Root::Stage(_) => None,
        };
        let sources: BTreeSet<usize> = edges.outputs[output].iter().filter_map(of).collect();
        let splits = |source: &usize| self.intake.splits_of(*source).collect::<Vec<usize>>();
        let table = |source: &usize| &self.plan.sources[*source].table;
        // A split without records must not stop the rows of other splits.
        if sources.iter().any(|source| table(source).splits_are_apart()) {
            let lanes = sources.iter().flat_map(|source| match table(source).splits_are_apart() {
                true => splits(source).into_iter().map(|split| vec![split]).collect(),
                false => vec![splits(source)],
            });
            return Turns::apart(lanes.collect(), false);
        }
        // A source that waits for its turn must not keep other stages and outputs from its records.
        let serves = |source: &usize| {
            let Feeds { stages, outputs, .. } = &edges.sources[*source];
            !stages.is_empty() || outputs.len() > 1
        };
        if sources.len() < 2 || sources.iter().any(serves) {
            return Turns::together(sources.iter().flat_map(splits).collect());
        }
        let rests = |source: &usize| table(source).bounded() && !table(source).live();
        Turns::apart(sources.iter().map(splits).collect(), sources.iter().all(rests))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::SideFile;

    #[test]
    fn changes_of_side_tables_are_told() {
        let of = |files: &[(&str, u64, i64)]| -> SideFiles {
            let file = |bytes, seconds| SideFile { bytes, modified: (seconds, 0) };
            files.iter().map(|(name, bytes, at)| (name.to_string(), file(*bytes, *at))).collect()
        };
        let before = of(&[("a", 1, 1), ("b", 1, 1), ("c", 1, 1)]);
        assert_eq!(changed("s", &before, &before), None);
        let told = |now| changed("s", &before, &of(now)).unwrap();
        let start = "lookup table 's' has changed since the checkpoint: ";
        assert_eq!(
            told(&[("a", 1, 1), ("b", 2, 1), ("d", 1, 1)]),
            format!("{start}b was written, d is new, c is gone")
        );
        assert_eq!(told(&[("a", 1, 2), ("b", 1, 1), ("c", 1, 1)]), format!("{start}a was written"));
        assert_eq!(
            told(&[("d", 1, 1), ("e", 1, 1)]),
            format!("{start}d is new, e is new, a is gone, and 2 more")
        );
    }
}
