//! What all workers of a job share: its parts, how they stop, and who takes in messages from other
//! processes.

mod observed;

use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};

use millstream_state::Mode;

use crate::edges::{Edges, Feeds, Root};
use crate::error::{Error, Result};
use crate::gather::{BatchRows, Gather, Window};
use crate::intake::Intake;
use crate::network::{self, Freed, Head, LAST, Net, decode_rows};
use crate::observe::Cells;
use crate::roles::Roles;
use crate::settings::{FragmentMode, Settings};
use crate::stage::Stage;
use crate::standing::{Pace, Standing};
use crate::stats::{OutputStats, Stats};
use millstream_operators::budget::{Budget, Kind};
use millstream_operators::env::Env;
use millstream_operators::event_time::{BEGINNING, END};
use millstream_operators::operator::RowTimes;
use millstream_operators::stamped::BatchPlace;
use millstream_operators::windowing::{SliceId, WindowId, time_before};

/// What all workers of a job share.
pub(crate) struct Shared {
    pub(crate) settings: Settings,
    pub(crate) env: Arc<dyn Env>,
    pub(crate) intake: Intake,
    /// By output.
    pub(crate) gathers: Vec<Gather>,
    /// Those that have state, in topological order.
    pub(crate) stages: Vec<Arc<Stage>>,
    pub(crate) edges: Edges,
    pub(crate) stopping: AtomicBool,
    /// The job's other processes, if it has any.
    pub(crate) net: Option<Arc<Net>>,
    /// Who sends and receives, if records are exchanged.
    pub(crate) roles: Roles,
    pub(crate) budget: Arc<Budget>,
    pub(crate) pace: Pace,
    /// All workers have ended, and the job is being closed.
    pub(crate) closing: AtomicBool,
    pub(crate) error: Mutex<Option<Error>>,
    pub(crate) latencies: Mutex<Latencies>,
    /// What workers tell the observer.
    pub(crate) cells: Cells,
    /// Somebody has asked to read no more.
    pub(crate) draining: AtomicBool,
    pub(crate) started_us: i64,
}

pub(crate) use observed::{Latencies, OPEN_MAX};

impl Shared {
    /// Stops all workers; the first error given is what the job ends with.
    pub(crate) fn stop(&self, error: Option<Error>) {
        if let Some(error) = error {
            let mut first = self.error.lock().unwrap_or_else(PoisonError::into_inner);
            first.get_or_insert(error);
        }
        self.stopping.store(true, Relaxed);
        self.wake_all();
    }

    pub(crate) fn wake_all(&self) {
        (0..self.settings.workers).for_each(|worker| self.env.wake(worker));
    }

    /// Logs what this process is about to run.
    pub(crate) fn tell_start(&self) {
        let names = self.stages.iter().map(|stage| stage.program.name());
        let stages = names.collect::<Vec<_>>().join("; ");
        let processes = self.net.as_ref().map_or(1, |net| net.place.processes);
        let (workers, memory_bytes) = (self.settings.workers, self.settings.memory_bytes);
        let outputs = self.gathers.len();
        tracing::info!(processes, workers, memory_bytes, stages, outputs, "workers start");
        self.intake.tell_sources();
    }

    /// Wakes all workers but `worker`, who would look again in vain before it waits.
    pub(crate) fn wake_others(&self, worker: usize) {
        let others = (0..self.settings.workers).filter(|other| *other != worker);
        others.for_each(|other| self.env.wake(other));
    }

    /// How far this process is.
    pub(crate) fn standing(&self) -> Standing {
        let (steps, waits) = self.pace.look();
        let waits = waits && !self.closing.load(Relaxed);
        Standing { steps, waits_for: if waits { self.intake.waits_for() } else { None } }
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.error.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Whether the job stops since all rows that are wanted are there.
    pub(crate) fn has_enough(&self) -> bool {
        self.stopping.load(Relaxed) && !self.has_failed()
    }

    /// What came of giving rows to an output: there may be nobody who takes more of them. Of rows
    /// that another process writes itself nobody can be told that: there it is an error.
    pub(crate) fn ends(&self, output: usize, came: Result<()>) -> Result<()> {
        let is_coordinator = self.net.as_ref().is_none_or(|net| net.is_coordinator());
        match came {
            Err(Error::OutputClosed) if is_coordinator => self.end_output(output),
            came => came,
        }
    }

    /// An output takes no more rows. Sources that only it wanted are not read any further, and when
    /// all outputs have ended the job does. The coordinator tells the others.
    pub(crate) fn end_output(&self, output: usize) -> Result<()> {
        if !self.gathers[output].end() {
            return Ok(());
        }
        if let Some(net) = self.net.as_ref().filter(|net| net.is_coordinator()) {
            let all = self.has_ended();
            let (output, flags) = (output as u16, if all { LAST } else { 0 });
            net.broadcast(Head { output, flags, ..Head::new(network::Kind::Enough) })?;
        }
        self.close_unwanted();
        Ok(())
    }

    /// No output takes any more rows, so the job ends.
    pub(crate) fn end_outputs(&self) -> Result<()> {
        (0..self.gathers.len()).try_for_each(|output| self.end_output(output))
    }

    /// Closes sources of which no output wants any more; if none wants anything, the job ends.
    pub(crate) fn close_unwanted(&self) {
        if self.has_ended() {
            return self.stop(None);
        }
        for (source, feeds) in self.edges.sources.iter().enumerate() {
            if !self.is_wanted(feeds) {
                self.intake.close(source);
            }
        }
    }

    /// Whether all outputs have ended but those for whose sake nothing is read.
    fn has_ended(&self) -> bool {
        self.gathers.iter().filter(|gather| !gather.is_side()).all(Gather::has_ended)
    }

    /// Whether some output wants what comes of some rows.
    pub(crate) fn is_wanted(&self, feeds: &Feeds) -> bool {
        feeds.serves.iter().any(|output| !self.gathers[*output].has_ended())
    }

    /// What has come out so far.
    pub(crate) fn counted(&self) -> Stats {
        let of = |gather: &Gather| OutputStats {
            rows: gather.rows(),
            windows: gather.windows(),
            side: gather.is_side(),
        };
        Stats::of_outputs(self.gathers.iter().map(of).collect())
    }

    /// Leaders, of all processes.
    pub(crate) fn leaders(&self) -> usize {
        self.net.as_ref().map_or(self.settings.workers, |net| net.leaders())
    }

    /// Number of this process's first leader among all.
    pub(crate) fn first_leader(&self) -> usize {
        self.net.as_ref().map_or(0, |net| net.first())
    }

    /// The worker of this process that is `leader`, if it is one.
    pub(crate) fn local(&self, leader: usize) -> Option<usize> {
        let local = leader.checked_sub(self.first_leader())?;
        (local < self.settings.workers).then_some(local)
    }

    /// Takes in what another process has sent to this one; returns what is free again. An internal
    /// error says what it has sent.
    pub(crate) fn take_message(
        &self,
        process: usize,
        head: Head,
        body: &[u8],
    ) -> Result<Option<Freed>> {
        let Some(net) = &self.net else { return Ok(None) };
        let leader = || {
            let leader = head.id as usize;
            let its = leader / self.settings.workers == process;
            let broken = || Error::Internal(format!("what leader {leader} has to say"));
            its.then_some(leader).ok_or_else(broken)
        };
        match head.kind {
            network::Kind::Credit => {
                leader()?;
                return net.credit(&head).map(Some);
            }
            network::Kind::Stamp => self.intake.stamp_other(&head)?,
            network::Kind::Ended | network::Kind::ReadTo => self.note_end(process, &head)?,
            network::Kind::Drain => self.begin_to_drain(false)?,
            network::Kind::Progress => self.intake.note_progress(process, &head)?,
            network::Kind::WindowRows if net.is_coordinator() => {
                let at = (head.count as usize, WindowId::from_word(head.rows_of));
                // If they need times, they bring them.
                let rows = (decode_rows(body)?, &RowTimes::Same(None));
                let gather = self.gather(&head)?;
                let came = gather.window_rows(leader()?, at, rows, head.has(LAST));
                self.ends(gather.output(), came)?;
                self.check_gathered()?;
            }
            network::Kind::BatchRows if net.is_coordinator() => {
                let (gather, place) = (self.gather(&head)?, self.place(&head)?);
                let rows = BatchRows { rows: decode_rows(body)?, then: None, last: head.has(LAST) };
                let came = gather.batch_rows(0, place, rows, &self.intake.ended_splits());
                self.ends(gather.output(), came)?;
                self.check_gathered()?;
            }
            network::Kind::BatchError if net.is_coordinator() => {
                let place = self.place(&head)?;
                let unknown = || Error::Internal("an error that does not say what it is".into());
                let error = Error::of_message(body).ok_or_else(unknown)?;
                self.gather(&head)?.note_failed(place, error);
            }
            network::Kind::Fired if net.is_coordinator() => {
                let stage = head.count as usize;
                self.gather(&head)?.advance(leader()?, stage, head.watermark)?;
            }
            network::Kind::Fired => {
                self.gather(&head)?.note_fired(head.count as usize, head.watermark)?;
                self.wake_all();
            }
            network::Kind::Written | network::Kind::Awaited => self.note_chunk(&head)?,
            network::Kind::Enough if process == 0 => {
                let output = self.gather(&head)?.output();
                self.end_output(output)?;
                if head.has(LAST) {
                    self.end_outputs()?;
                }
            }
            kind => return Err(Error::Internal(format!("a message of kind {kind:?}"))),
        }
        Ok(None)
    }

    /// Another process has read so much of a split, and reads no more: rows may have waited.
    fn note_end(&self, process: usize, head: &Head) -> Result<()> {
        match head.kind {
            network::Kind::Ended => self.intake.ended_elsewhere(head)?,
            _ => self.intake.note_read_to(process, head)?,
        }
        self.queue_batches();
        Ok(())
    }

    /// Another process tells that a chunk's rows come next, or that it waits for them.
    fn note_chunk(&self, head: &Head) -> Result<()> {
        let chunk = (head.number, self.intake.checked(head)?);
        let gather = self.gather(head)?;
        match head.kind {
            network::Kind::Written => gather.note_written(chunk)?,
            _ => gather.note_request(chunk)?,
        }
        self.wake_all();
        Ok(())
    }

    /// The output that a message is about.
    fn gather(&self, head: &Head) -> Result<&Gather> {
        let output = usize::from(head.output);
        let unknown = || Error::Internal(format!("rows for output {output}, which is not there"));
        self.gathers.get(output).ok_or_else(unknown)
    }

    /// The batch that a message is about.
    fn place(&self, head: &Head) -> Result<BatchPlace> {
        let split = self.intake.checked(head)?;
        Ok(BatchPlace { sequence: head.number, split, part: head.count })
    }

    /// Queues rows of records whose turn it is, which may be since a split has ended.
    pub(crate) fn queue_batches(&self) {
        let mut takes = self.gathers.iter().filter(|gather| gather.takes_batches()).peekable();
        if takes.peek().is_some() {
            let ended = self.intake.ended_splits();
            takes.for_each(|gather| gather.queue_batches(&ended));
        }
    }

    /// Whether rows of some output have their turn, and nobody writes them.
    pub(crate) fn needs_writer(&self) -> bool {
        self.gathers.iter().any(Gather::needs_writer)
    }

    /// Bytes of rows that are being written or about to be.
    pub(crate) fn queued_bytes(&self) -> u64 {
        self.gathers.iter().map(Gather::queued_bytes).sum()
    }

    /// Writes a share of each output's rows that have their turn; returns how many windows every
    /// leader's rows have been written of now, or `None` if nothing waited for a writer.
    pub(crate) fn write_shares(&self, worker: usize) -> Result<Option<u64>> {
        let mut windows = None;
        for gather in self.gathers.iter().filter(|gather| gather.needs_writer()) {
            let windows = windows.get_or_insert(0);
            match gather.write_share(worker) {
                Ok(written) => {
                    *windows += written.windows.len() as u64;
                    self.note_windows(gather.output(), &written.windows);
                    if written.enough {
                        self.end_output(gather.output())?;
                    }
                }
                Err(error) => self.ends(gather.output(), Err(error))?,
            }
        }
        Ok(windows)
    }

    /// Rows that wait for their order have to fit, those of other processes, too; what tables would
    /// take next is for those to judge that let them grow.
    pub(crate) fn check_gathered(&self) -> Result<()> {
        // What is being written will be free.
        let exceeded = self.budget.is_exceeded_beside(self.queued_bytes());
        if !exceeded || self.budget.held(Kind::Segments) > 0 {
            return Ok(());
        }
        self.budget.check().map(|_| ())
    }

    pub(crate) fn take_error(&self) -> Option<Error> {
        self.error.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(crate) fn fragment_mode(&self) -> Option<Mode> {
        match self.settings.fragment_mode {
            FragmentMode::Auto => None,
            FragmentMode::Aggregate => Some(Mode::Aggregate),
            FragmentMode::PassThrough => Some(Mode::PassThrough),
        }
    }

    /// Windows of the outputs that what a slice of some stage holds will be part of, when all that
    /// fire up to `frontier` have fired.
    pub(crate) fn windows_of(
        &self,
        stage: usize,
        slice: SliceId,
        frontier: i64,
        windows: &mut BTreeSet<(i64, i64)>,
    ) {
        let windowing = self.stages[stage].windowing();
        let open = windowing.windows_of(slice).filter(|w| windowing.fires_at(*w) > frontier);
        open.for_each(|window| self.note_open(stage, window, windows));
    }

    /// A window of some stage is open, and those of the outputs that its rows will be part of.
    pub(crate) fn note_open(
        &self,
        stage: usize,
        window: WindowId,
        windows: &mut BTreeSet<(i64, i64)>,
    ) {
        let windowing = self.stages[stage].windowing();
        if windowing.is_whole() {
            return;
        }
        // Several windows, or sessions, that fire under one name are counted as one.
        let [start, end, time] = windowing.columns_of(window).unwrap_or_else(|| {
            let end = windowing.fires_at(window).saturating_sub(windowing.lateness_us());
            [windowing.begin_of_last_slice(window), end, time_before(end)]
        });
        let feeds = &self.edges.stages[stage];
        if !feeds.outputs.is_empty() && windowing.has_windows() {
            windows.insert((start, end));
        }
        for next in &feeds.stages {
            let slice = self.stages[*next].windowing().slice_of(time).slice;
            self.windows_of(*next, slice, BEGINNING, windows);
        }
    }

    /// When the records had been read that let a stage fire up to a watermark, if it is known.
    fn reached_at(&self, stage: usize, watermark: i64) -> Option<i64> {
        let reached = |root: &Root| match root {
            Root::Source(source) => self.intake.reached_at(*source, watermark),
            Root::Stage(before) => {
                let frontier = self.stages[*before].windowing().frontier_for(watermark);
                self.reached_at(*before, frontier)
            }
        };
        let all: Option<Vec<i64>> = self.stages[stage].inputs.iter().map(reached).collect();
        all?.into_iter().max()
    }

    /// Windows of an output have been written.
    fn note_windows(&self, output: usize, windows: &[Window]) {
        if !windows.is_empty() && self.budget.tight() {
            // Somebody may wait for that.
            self.wake_all();
        }
        for Window { fires_at, input, .. } in windows {
            let Some(Root::Stage(stage)) = self.edges.outputs[output].get(*input) else { continue };
            let Some(at) = self.reached_at(*stage, *fires_at) else { continue };
            let mut latencies = self.latencies.lock().unwrap_or_else(PoisonError::into_inner);
            latencies.add((self.env.now_us() - at).max(0) as u64);
        }
    }

    /// Whether everything has been merged, fired and freed that is complete when all sources of a
    /// group have got to a watermark, in this process and in the others: if state is still at its
    /// budget then, waiting does not help. What holds a stage back is, of all sources of its group
    /// and of all processes, the one that is least far; so of those that ask for their own low
    /// watermark, one is told yes.
    pub(crate) fn settled(&self, group: usize, watermark: i64) -> bool {
        if self.budget.held(Kind::Segments) > 0 || self.queued_bytes() > 0 {
            return false;
        }
        let sources = || self.edges.sources.iter().filter(|feeds| feeds.group == group);
        let mut lows: Vec<i64> = Vec::with_capacity(self.stages.len());
        for stage in &self.stages {
            let low = |root: &Root| match root {
                Root::Source(_) => watermark,
                Root::Stage(before) => {
                    self.stages[*before].windowing().watermark_after(lows[*before])
                }
            };
            lows.push(stage.inputs.iter().map(low).min().unwrap_or(END));
        }
        let of_group = |stage: usize| sources().any(|feeds| feeds.later.contains(&stage));
        let stages = self.stages.iter().zip(lows).filter(|(stage, _)| of_group(stage.number));
        stages.into_iter().all(|(stage, low)| {
            let outputs = self.edges.stages[stage.number].outputs.iter();
            let gathers = outputs.map(|output| &self.gathers[*output]);
            let gathers = gathers.filter(|gather| !gather.has_ended());
            let gathered = gathers.map(|gather| gather.fired(stage.number)).min();
            let fired = stage.fired().min(gathered.unwrap_or(END));
            let windowing = stage.windowing();
            windowing.passed(fired) >= windowing.passed(low)
        })
    }
}
