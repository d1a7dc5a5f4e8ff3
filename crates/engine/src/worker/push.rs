//! Records on their way: through stages without state, to all stages and outputs that take them.

use super::passed::{Passed, joined};
use super::{StageState, Worker};
use crate::edges::{Edge, Pass, Takers};
use crate::error::{Error, Result};
use millstream_operators::budget::batch_bytes;
use millstream_operators::operator::assign::dropped;
use millstream_operators::operator::expansion::{Expansion, Piece};
use millstream_operators::operator::{Dropped, Records, stateless};
use millstream_operators::skipped::{note_row, place_of};
use millstream_operators::stamped::Stamped;

/// Limit of bytes of a batch's elements or matches, with the values repeated beside them, if the
/// rows leave the job unchanged: such rows wait for their turn as a whole.
const EXPANDED_BYTES_MAX: usize = 256 << 20;

impl Worker {
    /// Gives records to all their readers.
    pub(super) fn push(
        &mut self,
        stages: &mut [StageState],
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
                true => pass.taking.rows(records.rows).map(|rows| (rows.into(), None)),
                false if pass.picks => pass.taking.pick(records.rows),
                false => pass.taking.take(records.rows).map(|taken| (taken, None)),
            };
            let ((taken, picked), failing) = match taken {
                Ok(taken) => (taken, None),
                Err(error) => {
                    let (taken, failing) = self.up_to_failing(error, pass, records)?;
                    ((taken, None), failing)
                }
            };
            let before = passed.len();
            let stateless::SelectedRows { rows, places } = taken;
            let count = picked.as_ref().map_or(rows.num_rows(), Vec::len);
            self.context.stats.note_passed(pass.stage, pass.input, count);
            let taken = stateless::SelectedRows { rows, places: behind(records, places) };
            match &pass.expansion {
                Some(expansion) => {
                    self.count_dropped(stages, pass, &taken, records.stamped)?;
                    let made =
                        self.push_pieces(stages, &pass.takers, expansion, &taken, records)?;
                    passed.extend(made);
                }
                None => {
                    let picked = picked.as_deref();
                    let taken = Records { picked, ..Records::taken(&taken, records) };
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
        stages: &mut [StageState],
        takers: &Takers,
        expansion: &Expansion,
        taken: &stateless::SelectedRows,
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

    /// Result of a pass for records that cannot be evaluated as a whole. A LIMIT may be reached
    /// before the failing record: then the rows before the record count, and the error only if more
    /// rows are wanted.
    fn up_to_failing(
        &self,
        error: Error,
        pass: &Pass,
        records: &Records<'_>,
    ) -> Result<(stateless::SelectedRows, Option<(usize, Error)>)> {
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
    pub(super) fn for_record(&self, error: Error, records: &Records<'_>, row: usize) -> Error {
        let name = self.context.shared.intake.name(records.stamped.split);
        error.for_record(&place_of(records.stamped, records.place(row), name))
    }

    /// Projection of records for a stage, and the rows that count, if others are left among them;
    /// `None` if the stage sees the records' own columns.
    pub(super) fn projected(
        &self,
        edge: &Edge,
        records: &Records<'_>,
    ) -> Result<Option<(stateless::SelectedRows, Option<Vec<u32>>)>> {
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
        let (taken, picked) = edge.taking.pick(records.rows).map_err(named)?;
        let stateless::SelectedRows { rows, places } = taken;
        Ok(Some((stateless::SelectedRows { rows, places: behind(records, places) }, picked)))
    }

    /// Counts the records of some rows that will be dropped by stages behind a pass.
    fn count_dropped(
        &mut self,
        stages: &[StageState],
        pass: &Pass,
        taken: &stateless::SelectedRows,
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

    /// Counts records that a stage has dropped.
    pub(super) fn note_dropped(&mut self, stage: usize, dropped: &Dropped, stamped: &Stamped) {
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
