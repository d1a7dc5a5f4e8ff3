//! Runs of an operator with and without restarts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::Int64Type;
use arrow::util::display::array_value_to_string;
use millstream_contract::error::Result;
use millstream_operators::event_time::{BEGINNING, END};
use millstream_operators::operator::saved::{Cut, SavePoint, SavedBatch, SetAside};
use millstream_operators::operator::{
    Batch, Delta, Leadership, Operator, Program, Room, RowTimes, Rows, SealSlice, Step,
};
use millstream_operators::passed::Reader;
use millstream_operators::windowing::{Fate, SliceId, WindowId};
use millstream_state::Mode;

use crate::cuts::{CutBatch, Cuts};
use crate::data::{COLUMNS, Chunk, Row, batch, chunks};
use crate::random::Random;

/// The workers of an operator, each of which leads some keys, with the rows that they have fired.
pub(crate) struct Run {
    program: Arc<dyn Program>,
    /// Of a batch, what it has.
    columns: Vec<usize>,
    workers: Vec<Box<dyn Operator>>,
    mode: Option<Mode>,
    frontier: i64,
    fired: BTreeMap<WindowId, Vec<String>>,
    /// How many slices were saved, and how many of these had fired.
    saved: [usize; 2],
    /// By worker: what is set aside; and what readers are to see of it.
    aside: Vec<Box<dyn SetAside>>,
    expected: Vec<(usize, String)>,
    /// The last cut; and what cuts have since the workers have started.
    cut: Cut,
    cuts: Cuts,
}

/// How many slices were left out, and how many of these had fired.
pub(crate) static LEFT_OUT: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

/// How often rows came for windows whose earlier rows were set aside, and a window waited for them.
pub(crate) static THAWED: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

/// A value of a row as text.
fn text(rows: &RecordBatch, row: usize) -> String {
    let columns = rows.columns().iter();
    columns.map(|c| array_value_to_string(c, row).expect("a value") + "|").collect()
}

impl Run {
    pub(crate) fn new(
        program: &Arc<dyn Program>,
        inputs: u64,
        leaders: usize,
        mode: Option<Mode>,
    ) -> Run {
        let (program, frontier, fired) = (program.clone(), BEGINNING, BTreeMap::new());
        let workers = start(&program, leaders, mode);
        // A join knows the columns of its sides alone.
        let columns = (0..COLUMNS.len() + usize::from(inputs == 1)).collect();
        let (aside, expected, cut, cuts) = Default::default();
        Run {
            program,
            columns,
            workers,
            mode,
            frontier,
            fired,
            saved: [0; 2],
            aside,
            expected,
            cut,
            cuts,
        }
    }

    /// Gives a worker the rows of a chunk.
    pub(crate) fn take(&mut self, chunk: &Chunk, scale: i64, worker: usize) -> Result<()> {
        let windowing = self.program.windowing();
        let mut of_slices: Vec<(SliceId, Vec<Row>)> = Vec::new();
        for row in &chunk.rows {
            let bounds = windowing.slice_of(row.0);
            let slice = match windowing.fate(&bounds, row.0, self.frontier) {
                Fate::InTime => bounds.slice,
                Fate::Partly(slice) => slice,
                Fate::Late => continue,
            };
            match of_slices.iter_mut().find(|(known, _)| *known == slice) {
                Some((_, rows)) => rows.push(*row),
                None => of_slices.push((slice, vec![*row])),
            }
        }
        let worker = worker % self.workers.len();
        let waits = self.workers.iter().any(|worker| worker.awaits_thaw(None));
        THAWED[0].fetch_add(usize::from(waits), Relaxed);
        for (slice, rows) in of_slices {
            let times = RowTimes::Each(rows.iter().map(|(time, _)| *time).collect());
            let (all, columns) = (batch(&rows, scale), &self.columns);
            let rows = &all.project(columns).expect("columns of it");
            let rows = Rows::Fired { rows, slice, times: &times };
            let batch = Batch { input: chunk.input, rows, filter: None, bytes: 0 };
            self.workers[worker].update(&batch, None)?;
        }
        self.deliver()?;
        self.fire(chunk.watermark)
    }

    /// Leaders get the rows that others have for them.
    fn deliver(&mut self) -> Result<()> {
        let seal = |worker: &mut Box<dyn Operator>| worker.seal(&|_| SealSlice::EndEpoch, false);
        let sealed: Vec<_> = self.workers.iter_mut().map(seal).collect();
        let mut reader = self.program.format().map(|format| Reader::new(format.clone()));
        for (leader, parcel) in sealed.into_iter().flat_map(|all| all.into_iter().enumerate()) {
            let leader = &mut self.workers[leader];
            for (slice, segment) in parcel.segments {
                leader.merge(slice, Delta::Segment(&segment))?;
            }
            for rows in parcel.passed {
                if let Some(rows) = leader.adopt(rows) {
                    let reader = reader.as_mut().expect("a format of passed rows");
                    reader.read_rows(rows.words(), &mut |rows| leader.take_in(rows))?;
                }
            }
        }
        Ok(())
    }

    /// Fires all windows that are complete.
    pub(crate) fn fire(&mut self, clock: i64) -> Result<()> {
        let windowing = self.program.windowing();
        for number in 0..self.workers.len() {
            let mut frontier = self.frontier;
            while let Some(window) = self.workers[number].complete(frontier, clock) {
                frontier = windowing.fires_at(window);
                if self.workers[number].awaits_thaw(Some(window)) {
                    THAWED[1].fetch_add(1, Relaxed);
                    self.end_saving()?;
                }
                let worker = &mut self.workers[number];
                if !worker.fire(window) {
                    continue;
                }
                loop {
                    let (rows, is_last) = match worker.step()? {
                        Step::Rows { rows, last, .. } => (rows, last),
                        Step::Working => continue,
                        Step::Over => break,
                    };
                    if rows.num_rows() > 0 {
                        let fired = self.fired.entry(window).or_default();
                        fired.extend((0..rows.num_rows()).map(|row| text(&rows, row)));
                    }
                    if is_last {
                        break;
                    }
                }
                worker.end_firing();
            }
        }
        self.frontier = self.frontier.max(clock);
        Ok(())
    }

    /// All that is saved, batches of at most so many rows and bytes.
    pub(crate) fn save(&mut self, rows_max: usize, bytes_max: usize) -> Result<Vec<SavedBatch>> {
        self.end_saving()?;
        self.set_aside(0, self.any_copies())?;
        let saved = self.save_aside(rows_max, bytes_max)?;
        assert!(saved.iter().all(|of| of.counting.is_none()), "nothing is left out");
        Ok(saved.into_iter().map(|of| of.batch).collect())
    }

    /// All of it is copied, a part, or none.
    fn any_copies(&self) -> usize {
        [usize::MAX, 2_000, 0][self.cut.number as usize % 3]
    }

    /// Takes a cut, which leaves out what a durable one has.
    fn set_aside(&mut self, durable: u64, copied_bytes_max: usize) -> Result<()> {
        self.cut = Cut { number: self.cut.number + 1, durable };
        for worker in &mut self.workers {
            self.aside.push(worker.set_aside(self.cut, copied_bytes_max)?);
        }
        Ok(())
    }

    /// Takes a cut, which leaves out what the cut before has. Before it is saved the first worker
    /// gets rows. By worker: the parts and slices that are left out.
    pub(crate) fn cut(&mut self, meanwhile: &[Chunk]) -> Result<Vec<Vec<(usize, SliceId)>>> {
        self.set_aside(self.cut.number, 0)?;
        let left_out = self.aside.iter().map(|aside| aside.unchanged().slices).collect();
        meanwhile.iter().try_for_each(|chunk| self.take(chunk, 1, 0))?;
        self.save_aside(1 << 14, 1 << 20)?;
        Ok(left_out)
    }

    /// One of the last cuts, or 0.
    fn any_durable(&self) -> u64 {
        let last = self.cut.number;
        let durable = last.saturating_sub(last * 7 % 5);
        if self.cuts.0.contains_key(&durable) { durable } else { 0 }
    }

    /// Sets rows aside, to be saved when a window needs them.
    fn begin_saving(&mut self) -> Result<()> {
        self.expected = shown(&self.save(1 << 14, 1 << 20)?);
        self.set_aside(self.any_durable(), 0)
    }

    /// Saves what is set aside, which is as it was then.
    fn end_saving(&mut self) -> Result<()> {
        if !self.aside.is_empty() {
            let saved = self.save_aside(50, 1 << 20)?;
            assert_eq!(shown(&whole(&saved)), self.expected, "{}", self.program.name());
        }
        Ok(())
    }

    fn save_aside(&mut self, rows_max: usize, bytes_max: usize) -> Result<Vec<CutBatch>> {
        let (parts, mut saved) = (self.program.saved_parts(), Vec::new());
        let (windowing, aside) = (self.program.windowing(), std::mem::take(&mut self.aside));
        for (number, (mut aside, worker)) in aside.into_iter().zip(&mut self.workers).enumerate() {
            let at = SavePoint::new(rows_max, bytes_max);
            let (batches, left_out) = self.cuts.save((0, number), &mut *aside, at)?;
            for CutBatch { batch, .. } in batches.iter().filter(|of| of.counting.is_none()) {
                assert_eq!(batch.rows.schema(), parts[batch.part].schema);
                assert!(batch.rows.num_rows() > 0);
                assert!(parts.len() > 1 || batch.rows.num_rows() <= rows_max);
            }
            let has_fired = |slice: &SliceId| {
                let first = windowing.windows_of(*slice).next();
                first.is_some_and(|first| windowing.fires_at(first) <= self.frontier)
            };
            LEFT_OUT[0].fetch_add(left_out.len(), Relaxed);
            LEFT_OUT[1]
                .fetch_add(left_out.iter().filter(|slice| has_fired(slice)).count(), Relaxed);
            saved.extend(batches);
            while worker.thaw() {}
            assert!(!worker.awaits_thaw(None));
        }
        self.cuts.0.insert(self.cut.number, saved.clone());
        Ok(saved)
    }

    /// Goes on with other workers, so many, which have nothing but what was saved.
    pub(crate) fn restart(&mut self, leaders: usize, rows_max: usize) -> Result<()> {
        let windowing = self.program.windowing();
        self.end_saving()?;
        self.set_aside(self.any_durable(), self.any_copies())?;
        let kept = self.save_aside(rows_max, 1 << 12)?;
        let saved = whole(&kept);
        for slice in slices(&saved) {
            self.saved[0] += 1;
            let first = windowing.windows_of(slice).next();
            let has_fired = first.is_some_and(|first| windowing.fires_at(first) <= self.frontier);
            self.saved[1] += usize::from(has_fired);
        }
        self.workers = start(&self.program, leaders, self.mode);
        self.cuts.0.clear();
        for worker in &mut self.workers {
            for CutBatch { batch, counting, .. } in &kept {
                worker.restore(batch.part, &batch.rows, counting.as_deref())?;
            }
        }
        self.resume()?;
        assert_eq!(shown(&saved), shown(&self.save(1 << 14, 1 << 20)?), "{}", self.program.name());
        Ok(())
    }

    /// The same run with workers without state.
    pub(crate) fn empty(&self, leaders: usize) -> Run {
        let (program, columns, fired) =
            (self.program.clone(), self.columns.clone(), BTreeMap::new());
        let (mode, frontier) = (self.mode, self.frontier);
        let workers = start(&program, leaders, mode);
        let (aside, expected, cut, cuts) = Default::default();
        Run {
            program,
            columns,
            workers,
            mode,
            frontier,
            fired,
            saved: [0; 2],
            aside,
            expected,
            cut,
            cuts,
        }
    }

    /// Gives the workers all that was saved.
    pub(crate) fn restore(&mut self, saved: &[SavedBatch]) -> Result<()> {
        for worker in &mut self.workers {
            saved.iter().try_for_each(|batch| worker.restore(batch.part, &batch.rows, None))?;
        }
        Ok(())
    }

    /// Goes on from that.
    pub(crate) fn resume(&mut self) -> Result<()> {
        let windowing = self.program.windowing();
        self.workers.iter_mut().try_for_each(|worker| worker.resume(&windowing, self.frontier))
    }
}

/// The rows that count.
fn whole(saved: &[CutBatch]) -> Vec<SavedBatch> {
    saved.iter().map(CutBatch::whole).collect()
}

fn slices(saved: &[SavedBatch]) -> BTreeSet<SliceId> {
    let names = saved.iter().flat_map(|batch| {
        let slices = batch.rows.column_by_name("$slice").expect("names of slices");
        slices.as_primitive::<Int64Type>().values().to_vec()
    });
    names.map(|name| SliceId::from_word(name as u64)).collect()
}

/// What readers see, in order.
pub(crate) fn shown(saved: &[SavedBatch]) -> Vec<(usize, String)> {
    let mut all = Vec::new();
    for SavedBatch { part, rows } in saved {
        let fields = rows.schema_ref().fields().iter().enumerate();
        let is_shown = fields.filter(|(_, field)| !field.name().starts_with('$'));
        let columns: Vec<usize> = is_shown.map(|(at, _)| at).collect();
        let rows = rows.project(&columns).expect("columns of it");
        all.extend((0..rows.num_rows()).map(|row| (*part, text(&rows, row))));
    }
    all.sort();
    all
}

fn start(program: &Arc<dyn Program>, leaders: usize, mode: Option<Mode>) -> Vec<Box<dyn Operator>> {
    let worker = |me| {
        let leadership = Leadership { me, leaders, of_empty_key: me == 0 };
        let (pool_bytes, buffer_bytes) = (1 << 16, 1 << 12);
        let room = Room { pool_bytes, buffer_bytes, mode, keeps_slices: true, ..Room::default() };
        program.clone().start(leadership, room)
    };
    (0..leaders).map(worker).collect()
}

/// A run of one worker without a restart, and one of up to five with restarts, of the same rows;
/// the slices that were saved.
pub(crate) fn compare(
    program: &Arc<dyn Program>,
    inputs: u64,
    step_us: u64,
    seed: u64,
) -> [usize; 2] {
    let mut random = Random::new(seed);
    let keys = random.pick(&[3, 40, 1000]);
    // Numbers far apart are found by their hashes.
    let scale = random.pick(&[1, 1 << 40]);
    let restarts = random.pick(&[2, 5, 15]);
    let modes = [None, Some(Mode::Aggregate), Some(Mode::PassThrough), Some(Mode::Joint)];
    let (leaders, mode) = (1 + random.below(5) as usize, random.pick(&modes));
    let mut whole = Run::new(program, inputs, 1, None);
    let mut parts = Run::new(program, inputs, leaders, mode);
    let count = if inputs > 1 { 40 } else { 60 };
    for chunk in chunks(&mut random, count, keys, inputs, step_us) {
        whole.take(&chunk, scale, 0).expect("rows that fit");
        parts.take(&chunk, scale, random.below(5) as usize).expect("rows that fit");
        if random.one_in(3) {
            parts.begin_saving().expect("rows");
        }
        if random.one_in(restarts) {
            let (leaders, rows_max) = (1 + random.below(5) as usize, random.pick(&[1, 7, 1 << 14]));
            parts.restart(leaders, rows_max).expect("rows that were saved");
        }
    }
    for run in [&mut whole, &mut parts] {
        run.fire(END).expect("rows");
        run.fired.values_mut().for_each(|rows| rows.sort());
    }
    assert!(whole.fired.values().flatten().count() > 0, "{} with seed {seed}", program.name());
    for (one, other) in whole.fired.iter().zip(&parts.fired) {
        assert_eq!(one, other, "{} with seed {seed}", program.name());
    }
    assert_eq!(whole.fired.len(), parts.fired.len(), "{} with seed {seed}", program.name());
    parts.end_saving().expect("rows");
    parts.workers.iter_mut().for_each(|worker| worker.end());
    let left = parts.save(1 << 14, 1 << 20).expect("rows");
    assert!(left.is_empty(), "{} with seed {seed}", program.name());
    parts.saved
}
