//! What a worker takes in: batches of records, which it pushes to all stages and outputs that take
//! them.

use arrow::array::RecordBatch;

use super::passed::{Passed, by_record, joined};
use super::{State, Step, Worker};
use crate::delivery::Hold;
use crate::edges::{Edge, Feeds, Pass, Takers};
use crate::error::{Error, Result};
use crate::gather::BatchRows;
use crate::intake::{Admitted, Offer};
use crate::plan::malformed_schema;
use millstream_operators::budget::{Kind, batch_bytes};
use millstream_operators::operator::assign::dropped;
use millstream_operators::operator::expansion::{Expansion, Piece};
use millstream_operators::operator::unnest::elements_in;
use millstream_operators::operator::{
    Batch, Dropped, Program, Records, RowTimes, Rows, Updated, stateless,
};
use millstream_operators::prepare::Prepared;
use millstream_operators::skipped::{note_malformed, note_row, place_of};
use millstream_operators::stamped::Stamped;
use millstream_state::Load;

/// What the elements or the matches of one batch may take, with what is repeated beside them, where
/// they leave the job as they are: they wait for their turn as a whole.
const EXPANDED_BYTES_MAX: usize = 256 << 20;

/// What rows may bring to a stage, as far as that can be told before anything is computed: as many
/// rows, or as there are elements in a column of them.
pub(super) fn load_of(takers: &Takers, stage: usize, batch: &RecordBatch) -> Load {
    let mut load = Load { rows: 0, text_bytes: 0 };
    let mut add = |edge: &Edge, elements: usize| {
        let Load { rows, text_bytes } = stateless::load(batch, &edge.texts);
        load.rows += rows.max(elements);
        load.text_bytes += text_bytes;
    };
    let of_stage = |edge: &&Edge| edge.stage == stage;
    takers.edges.iter().filter(of_stage).for_each(|edge| add(edge, 0));
    for pass in &takers.passes {
        let array = pass.expansion.as_ref().and_then(|expansion| expansion.array(&pass.taking));
        let elements = array.map_or(0, |array| elements_in(batch.column(array)));
        let edges = pass.takers.all_edges().into_iter();
        edges.filter(of_stage).for_each(|edge| add(edge, elements));
    }
    load
}

/// Where rows stand in the batch that they are of, when those that stand at `places` among others
/// have been taken.
fn behind(records: &Records<'_>, places: Option<Vec<u32>>) -> Option<Vec<u32>> {
    match (places, records.places) {
        (None, before) => before.map(<[u32]>::to_vec),
        (places, None) => places,
        (Some(mut places), Some(before)) => {
            places.iter_mut().for_each(|place| *place = before[*place as usize]);
            Some(places)
        }
    }
}

impl Worker {
    /// Takes a batch of records, if all stages and outputs that take them have room for what comes
    /// of it.
    pub(super) fn take_input(&mut self, stages: &mut [State], tight: bool) -> Result<Step> {
        let shared = self.context.shared.clone();
        let gates = match self.gates(stages, tight)? {
            Ok(gates) => gates,
            Err(step) => return Ok(step),
        };
        let from = self.context.timed_from();
        let mut read = None;
        let taken = shared.intake.take(self.context.id, &gates.only, &mut read)?;
        if let Offer::Batch(_) | Offer::Again = taken {
            self.note_reading(read, from);
        }
        match taken {
            Offer::Batch(batch) => {
                let source = shared.intake.source_of(batch.split);
                let feeds = &shared.edges.sources[source];
                if !self.have_room(stages, &gates.only[source], &batch, tight)? {
                    shared.intake.put_back(self.context.id, batch);
                    return Ok(self.stall(stages));
                }
                self.process(stages, feeds, &batch)?;
                Ok(Step::Busy)
            }
            Offer::Again => {
                // A split may have ended, whose rows others waited for.
                shared.queue_batches();
                Ok(Step::Busy)
            }
            Offer::Wait { until_us } => {
                let until_us = [until_us, gates.look_again_us].into_iter().flatten().min();
                Ok(self.pause(stages, until_us))
            }
            Offer::Held => Ok(self.stall(stages)),
            // Whoever finishes the last batch wakes the others.
            Offer::Ended => Ok(self.pause(stages, gates.look_again_us)),
        }
    }

    /// Whether all stages that a batch's source feeds have room for it. If all others wait for its
    /// rows, there is nobody to wait for but leaders that merge.
    fn have_room(
        &mut self,
        stages: &mut [State],
        only: &Admitted,
        batch: &Stamped,
        tight: bool,
    ) -> Result<bool> {
        let shared = self.context.shared.clone();
        let feeds = &shared.edges.sources[shared.intake.source_of(batch.split)];
        let awaited = matches!(only, Admitted::Awaited(_));
        let is_held = |stage: &usize| -> Result<bool> {
            Ok(self.delivery.hold(&self.context, &stages[*stage])? == Some(Hold::Leader))
        };
        let mut lacks_credit = false;
        for stage in feeds.later.iter().filter(|_| awaited) {
            lacks_credit |= is_held(stage)?;
        }
        let settled = || match awaited {
            true => lacks_credit || shared.budget.held(Kind::Segments) == 0,
            false => shared.settled(feeds.group, batch.holds),
        };
        for stage in &feeds.stages {
            let load = load_of(&feeds.takers, *stage, &batch.prepared.batch);
            let state = &mut stages[*stage];
            if !self.delivery.has_room(&self.context, state, load, tight, &settled)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Counts the time since `from`, in which a source was read, if one was.
    fn note_reading(&mut self, source: Option<usize>, from: Option<i64>) {
        let us = self.context.timed_since(from);
        self.context.stats.read_us += us;
        if let Some(of_source) = source.and_then(|at| self.context.stats.sources.get_mut(at)) {
            of_source.read_us += us;
        }
    }

    fn count_batch(&mut self, batch: &Stamped) {
        let Prepared { batch: rows, input_bytes, .. } = &batch.prepared;
        let (records, input_bytes) = (rows.num_rows() as u64, *input_bytes as u64);
        self.context.stats.records += records;
        self.context.stats.input_bytes += input_bytes;
        let source = self.context.shared.intake.source_of(batch.split);
        if let Some(of_source) = self.context.stats.sources.get_mut(source) {
            of_source.records += records;
            of_source.input_bytes += input_bytes;
        }
        self.context.stats.malformed_records += batch.prepared.malformed_records;
        note_malformed(&mut self.context.stats.first_malformed, batch);
        self.context.stats.batches_stolen +=
            u64::from(!self.context.shared.intake.prefers(self.context.id, batch.split));
        if let Some(times) = &batch.prepared.times {
            self.context.stats.ahead_records += times.ahead_records;
            let name = self.context.shared.intake.name(batch.split);
            note_row(&mut self.context.stats.first_ahead, batch, times.first_ahead, name);
        }
    }

    fn process(&mut self, stages: &mut [State], feeds: &Feeds, batch: &Stamped) -> Result<()> {
        self.count_batch(batch);
        self.refresh_lookups();
        let records = Records::all(batch);
        let mut passed = Vec::new();
        self.push(stages, &feeds.takers, &records, &mut passed)?;
        if !feeds.malformed.is_empty() {
            let rows = batch.prepared.malformed.clone();
            let rows = rows.unwrap_or_else(|| RecordBatch::new_empty(malformed_schema()));
            let malformed = Records { rows: &rows, ..records };
            self.push(stages, &feeds.malformed, &malformed, &mut passed)?;
        }
        self.write_batch(feeds, batch, passed)
    }

    /// Looks whether the side tables of lookups have changed, now and then.
    fn refresh_lookups(&self) {
        let shared = &self.context.shared;
        if shared.edges.lookups.is_empty() {
            return;
        }
        let (now_us, notices) = (shared.env.now_us(), shared.intake.notices());
        let tell = |line| notices.tell(line);
        shared.edges.lookups.iter().for_each(|lookup| lookup.refresh(now_us, &tell));
    }

    /// Gives records to all who take them.
    fn push(
        &mut self,
        stages: &mut [State],
        takers: &Takers,
        records: &Records<'_>,
        passed: &mut Vec<Passed>,
    ) -> Result<()> {
        for edge in &takers.edges {
            if self.context.shared.is_wanted(&self.context.shared.edges.stages[edge.stage]) {
                self.update(&mut stages[edge.stage], edge, records)?;
            }
        }
        passed.extend(takers.ways.iter().map(|way| {
            let (output, input, rows) = (way.output, way.input, records.rows.clone());
            let places = records.places.filter(|_| way.has_siblings).map(<[u32]>::to_vec);
            Passed { output, input, rows, places, then: None }
        }));
        for pass in &takers.passes {
            if let Some(late) = &pass.late {
                let name = self.context.shared.intake.name(records.stamped.split);
                let taken = late.take(&pass.taking, records, name)?;
                let taken = Records::taken(&taken, records);
                self.context.stats.note_passed(pass.stage, pass.input, taken.rows.num_rows());
                self.push(stages, &pass.takers, &taken, passed)?;
                continue;
            }
            let Takers { edges, passes, ways } = &pass.takers;
            let has_siblings = ways.iter().any(|way| way.has_siblings);
            let taken = match edges.is_empty() && passes.is_empty() && !has_siblings {
                true => pass.taking.rows(records.rows).map(stateless::Taken::from),
                false => pass.taking.take(records.rows),
            };
            let (taken, failing) = match taken {
                Ok(taken) => (taken, None),
                Err(error) => self.up_to_failing(error, pass, records)?,
            };
            let before = passed.len();
            let stateless::Taken { rows, places } = taken;
            self.context.stats.note_passed(pass.stage, pass.input, rows.num_rows());
            let taken = stateless::Taken { rows, places: behind(records, places) };
            match &pass.expansion {
                Some(expansion) => {
                    self.count_dropped(stages, pass, &taken, records.stamped)?;
                    let made =
                        self.push_pieces(stages, &pass.takers, expansion, &taken, records)?;
                    passed.extend(made);
                }
                None => {
                    let taken = Records::taken(&taken, records);
                    self.push(stages, &pass.takers, &taken, passed)?;
                }
            }
            if let Some(error) = failing {
                let ends = passed[before..].iter_mut().filter(|passed| passed.then.is_none());
                ends.for_each(|passed| passed.then = Some(error.clone()));
            }
        }
        Ok(())
    }

    /// Gives what records come to, piece by piece, to all who take it. Returns what outputs take.
    fn push_pieces(
        &mut self,
        stages: &mut [State],
        takers: &Takers,
        expansion: &Expansion,
        taken: &stateless::Taken,
        records: &Records<'_>,
    ) -> Result<Vec<Passed>> {
        let mut pieces = match expansion.pieces(taken) {
            Err(error) if error.is_of_records() => {
                let failing = expansion.first_failing(&taken.rows);
                let taken = Records::taken(taken, records);
                return Err(match failing {
                    Some((row, error)) => self.for_record(error, &taken, row),
                    None => error,
                });
            }
            pieces => pieces?,
        };
        let mut made: Vec<Passed> = Vec::new();
        let (mut bytes, mut of) = (0, *records);
        let mut given = (of.continued, of.elements);
        while let Some(Piece { taken, continued }) = pieces.next_piece()? {
            let (before, continued) = (made.len(), continued.or(of.continued));
            let elements = if given.0 == continued { given.1 } else { 0 };
            let piece = Records { continued, elements, ..Records::taken(&taken, &of) };
            given = last_element(&piece);
            self.push(stages, takers, &piece, &mut made)?;
            // The first one stands for the input.
            (of.bytes, of.continued) = (0, None);
            bytes += made[before..].iter().map(|passed| batch_bytes(&passed.rows)).sum::<usize>();
            if bytes > EXPANDED_BYTES_MAX {
                return Err(expansion.too_many(EXPANDED_BYTES_MAX));
            }
        }
        joined(made)
    }

    /// What a pass makes of records that cannot be evaluated as a whole. A LIMIT may be reached
    /// before the record with which it fails: then the rows before that one count, and the error
    /// only if more are wanted.
    fn up_to_failing(
        &self,
        error: Error,
        pass: &Pass,
        records: &Records<'_>,
    ) -> Result<(stateless::Taken, Option<(usize, Error)>)> {
        if !error.is_of_records() {
            return Err(error);
        }
        let (taken, failing) = pass.taking.up_to_failing(records.rows)?;
        let named = |(row, error)| (records.place(row), self.for_record(error, records, row));
        let (place, error) = failing.map_or((records.rows.num_rows(), error), named);
        let takers = &pass.takers;
        let limited = takers.all_edges().is_empty()
            && takers
                .all_ways()
                .iter()
                .all(|way| self.context.shared.gathers[way.output].has_limit());
        match limited {
            true => Ok((taken, Some((place, error)))),
            false => Err(error),
        }
    }

    /// An error that is about a record, with its place.
    fn for_record(&self, error: Error, records: &Records<'_>, row: usize) -> Error {
        let name = self.context.shared.intake.name(records.stamped.split);
        error.for_record(&place_of(records.stamped, records.place(row), name))
    }

    /// An error of updating a stage, with the place of the record that it is about.
    fn of_record(
        &self,
        error: Error,
        program: &dyn Program,
        batch: &Batch<'_>,
        records: &Records<'_>,
    ) -> Error {
        if !error.is_of_records() {
            return error;
        }
        let failing = program.first_failing(batch);
        failing.map_or(error, |(row, error)| self.for_record(error, records, row))
    }

    /// What a stage sees of records, if it sees other columns than theirs.
    fn projected(&self, edge: &Edge, records: &Records<'_>) -> Result<Option<stateless::Taken>> {
        if edge.taking.project.is_none() {
            return Ok(None);
        }
        let named = |error: Error| {
            let failing = match error.is_of_records() {
                true => edge.taking.up_to_failing(records.rows).ok().and_then(|(_, f)| f),
                false => None,
            };
            failing.map_or(error, |(row, error)| self.for_record(error, records, row))
        };
        let taken = edge.taking.take(records.rows).map_err(named)?;
        let stateless::Taken { rows, places } = taken;
        Ok(Some(stateless::Taken { rows, places: behind(records, places) }))
    }

    /// Counts the records of some rows that will be dropped by stages behind a pass.
    fn count_dropped(
        &mut self,
        stages: &[State],
        pass: &Pass,
        taken: &stateless::Taken,
        stamped: &Stamped,
    ) -> Result<()> {
        for stage in &pass.counted {
            if self.context.shared.is_wanted(&self.context.shared.edges.stages[*stage]) {
                let windowing = stages[*stage].stage.windowing();
                let dropped = dropped(windowing, stamped, taken.places.as_deref(), &mut |_| {})?;
                self.note_dropped(*stage, &dropped, stamped);
            }
        }
        Ok(())
    }

    /// Counts records, or rows of another stage, that have passed the conditions of a stage.
    fn note_taken(&mut self, edge: &Edge, rows: u64) {
        if let Some(of_stage) = self.context.stats.stages.get_mut(edge.stage) {
            of_stage.rows_in += rows;
            if let Some(of_input) = of_stage.rows_in_by_input.get_mut(edge.input) {
                *of_input += rows;
            }
        }
    }

    /// Counts the time since `from`, in which a stage was updated.
    fn note_updating(&mut self, stage: usize, from: Option<i64>) {
        let us = self.context.timed_since(from);
        if let Some(of_stage) = self.context.stats.stages.get_mut(stage) {
            of_stage.update_us += us;
        }
    }

    /// Counts records that a stage has dropped.
    fn note_dropped(&mut self, stage: usize, dropped: &Dropped, stamped: &Stamped) {
        self.context.stats.late_records += dropped.late;
        self.context.stats.partly_late_records += dropped.partly_late;
        if let Some(of_stage) = self.context.stats.stages.get_mut(stage) {
            of_stage.late_records += dropped.late;
            of_stage.partly_late_records += dropped.partly_late;
        }
        self.context.stats.null_time_records += dropped.null_time;
        self.context.stats.unusable_time_records += dropped.unusable_time;
        let name = self.context.shared.intake.name(stamped.split);
        let of_stage = self.context.shared.stages.get(stage).filter(|_| dropped.late > 0);
        if let Some(stage) = of_stage.filter(|stage| stage.note_late()) {
            let stage = stage.place + 1;
            tracing::warn!(
                stage,
                split = name,
                "the first records come too late for their windows"
            );
        }
        note_row(&mut self.context.stats.first_null_time, stamped, dropped.first_null_time, name);
        note_row(
            &mut self.context.stats.first_unusable_time,
            stamped,
            dropped.first_unusable_time,
            name,
        );
    }

    /// Updates a stage with records.
    fn update(&mut self, state: &mut State, edge: &Edge, records: &Records<'_>) -> Result<()> {
        let taken = self.projected(edge, records)?;
        let records = match &taken {
            Some(taken) => Records::taken(taken, records),
            None => *records,
        };
        let stamped = records.stamped;
        let batch = Batch {
            input: edge.input,
            rows: Rows::Records(records),
            filter: edge.taking.plain_filter(),
            bytes: records.bytes,
        };
        let from = self.context.timed_from();
        let updated = self.delivery.update(&mut self.context, state, &batch);
        self.note_updating(edge.stage, from);
        let Updated { passing, others_rows, .. } = updated
            .map_err(|error| self.of_record(error, &*state.stage.program, &batch, &records))?;
        if !edge.again {
            self.note_dropped(edge.stage, &passing.dropped, stamped);
        }
        self.note_taken(edge, passing.rows);
        self.context.stats.fragment_rows_in += others_rows;
        Ok(())
    }

    /// Gives the rows of a batch to the outputs that take them.
    fn write_batch(
        &mut self,
        feeds: &Feeds,
        batch: &Stamped,
        mut passed: Vec<Passed>,
    ) -> Result<()> {
        if feeds.outputs.is_empty() {
            return Ok(());
        }
        let from = self.context.timed_from();
        let shared = &self.context.shared;
        let ended = shared.intake.ended_splits();
        passed.sort_by_key(|passed| (passed.output, passed.input));
        let mut passed = passed.into_iter().peekable();
        for output in &feeds.outputs {
            let mut parts = Vec::new();
            while let Some(part) = passed.next_if(|passed| passed.output == *output) {
                parts.push(part);
            }
            let (rows, then) = by_record(parts)?;
            let gather = &shared.gathers[*output];
            let rows = BatchRows { rows, then, last: batch.last };
            let came = gather.batch_rows(self.context.id, batch.place(), rows, &ended);
            shared.ends(*output, came)?;
            if gather.sorts() {
                // Nothing of it can be written before the end.
                shared.check_gathered()?;
            }
        }
        self.context.stats.write_us += self.context.timed_since(from);
        Ok(())
    }

    /// Takes in rows that a stage before has fired, all of which update one slice.
    pub(super) fn take_rows(
        &mut self,
        state: &mut State,
        edge: &Edge,
        rows: &RecordBatch,
        times: &RowTimes,
    ) -> Result<()> {
        if rows.num_rows() == 0 {
            return Ok(());
        }
        let windowing = *state.stage.windowing();
        let Some(slice) = windowing.slice_of_rows(times.at(0)) else {
            return Err(Error::Internal("windows over rows without a time".into()));
        };
        if windowing.closes_at(slice) <= state.announced {
            return Err(Error::Internal(format!("rows for {slice} after its end")));
        }
        let (taken, of_taken);
        let (seen, times) = match (&edge.taking.project, times) {
            (None, _) => (rows, times),
            (Some(_), RowTimes::Same(_)) => {
                taken = edge.taking.rows(rows)?;
                (&taken, times)
            }
            (Some(_), RowTimes::Each(_)) => {
                let stateless::Taken { rows, places } = edge.taking.take(rows)?;
                (taken, of_taken) = (rows, times.of(places.as_deref()));
                (&taken, &of_taken)
            }
        };
        let batch = Batch {
            input: edge.input,
            rows: Rows::Fired { rows: seen, slice, times },
            filter: edge.taking.plain_filter(),
            bytes: batch_bytes(rows),
        };
        let from = self.context.timed_from();
        let updated = self.delivery.update(&mut self.context, state, &batch)?;
        self.note_updating(edge.stage, from);
        self.context.stats.inner_rows += rows.num_rows() as u64;
        self.note_taken(edge, updated.passing.rows);
        self.context.stats.fragment_rows_in += updated.others_rows;
        Ok(())
    }
}

/// The record that the last row is of, and the number of its element.
fn last_element(piece: &Records<'_>) -> (Option<u32>, u32) {
    let places = piece.places.unwrap_or_default();
    let Some(last) = places.last() else { return (piece.continued, piece.elements) };
    let own = places.iter().rev().take_while(|place| *place == last).count();
    let before = match own == places.len() && piece.continued == Some(*last) {
        true => piece.elements as usize + 1,
        false => 0,
    };
    (Some(*last), (before + own - 1) as u32)
}
