//! Rows of windows: held until every leader has fired a window, then queued in order of event time.

use super::ahead::Turn;
use super::output::Role;
use super::packs::{FiredRuns, OutputWindow};
use super::queue::QueuedItem;
use super::{Gather, GatherState};
use crate::error::{Error, Result};
use crate::network::{Head, Kind, LAST};
use crate::rows::{Rows, RowsKind};
use millstream_operators::columns::first_columns;
use millstream_operators::event_time::BEGINNING;
use millstream_operators::operator::RowTimes;
use millstream_operators::windowing::WindowId;

impl Gather {
    /// A window of an input.
    pub(super) fn window(&self, input: usize, id: WindowId) -> Result<OutputWindow> {
        let unknown = || Error::Internal(format!("rows of a window of input {input}"));
        let windowing = self.output.windowing_of(input).ok_or_else(unknown)?;
        Ok(OutputWindow { fires_at: windowing.fires_at(id), input, id })
    }

    /// Rows of a window of an input, with their event times; `last` on the leader's last batch of
    /// it.
    pub(crate) fn window_rows(
        &self,
        worker: usize,
        (input, window): (usize, WindowId),
        (rows, times): (Rows, &RowTimes),
        last: bool,
    ) -> Result<()> {
        let window = self.window(input, window)?;
        if self.has_ended() {
            return Ok(());
        }
        if rows.kind == RowsKind::Changes {
            return self.write_changes(worker, &rows.batch, last);
        }
        let rows = self.output.on_way(rows.batch, times)?;
        if let Role::Helper { net, .. } = &self.output.role {
            if rows.num_rows() == 0 && !last {
                return Ok(());
            }
            let rows = if self.ordered { self.sorted(rows)? } else { rows };
            let head = Head {
                flags: if last { LAST } else { 0 },
                id: (net.first() + worker) as u32,
                output: self.output.output as u16,
                count: input as u64,
                rows_of: window.id.word(),
                ..Head::new(Kind::WindowRows)
            };
            return self.send(net, head, &rows, Turn::Fires(window.fires_at));
        }
        if !self.ordered {
            let windows = self.output.windows_of(&rows);
            self.lock().windows.entry(window).or_default().windows.add(windows);
            return match rows.num_rows() > 0 || last {
                true => self.write(worker, &rows, last),
                false => Ok(()),
            };
        }
        let windows = self.output.windows_of(&rows);
        let rows = match self.sorts() {
            true => first_columns(&rows, self.output.schema.fields().len())?.into_owned(),
            false => rows,
        };
        let run = self.held(self.sorted(rows)?);
        let mut state = self.lock();
        if self.has_ended() {
            return Ok(());
        }
        let fired = state.windows.entry(window).or_default();
        fired.windows.add(windows);
        if !self.sorts() {
            fired.runs.extend(Some(run).filter(|run| run.rows.num_rows() > 0));
            return Ok(());
        }
        drop(state);
        self.hold_to_sort(run)
    }

    /// `worker` has fired everything of a stage that a watermark completes. Windows that every
    /// leader has fired, of all stages, have their turn now.
    pub(crate) fn advance(&self, worker: usize, stage: usize, watermark: i64) -> Result<()> {
        let Some(place) = self.output.place_of(stage).filter(|_| !self.has_ended()) else {
            return Ok(());
        };
        let mut state = self.lock();
        let unknown = || Error::Internal(format!("what leader {worker} has fired"));
        let frontier = state.frontiers[place].get_mut(worker).ok_or_else(unknown)?;
        *frontier = watermark.max(*frontier);
        let fired = fired(&state.frontiers[place]);
        if let Role::Helper { net, .. } = &self.output.role {
            state.written[place] = fired;
            let (id, count) = ((net.first() + worker) as u32, stage as u64);
            let output = self.output.output as u16;
            let head = Head { id, output, count, watermark, ..Head::new(Kind::Fired) };
            return net.post(0, head, Vec::new());
        }
        self.queue_fired(&mut state);
        if fired > state.queued[place] {
            state.queued[place] = fired;
            self.push(&mut state, QueuedItem::FiredRuns { place, watermark: fired });
        }
        Ok(())
    }

    /// Queues windows whose turn has come.
    fn queue_fired(&self, state: &mut GatherState) {
        if self.takes_batches() {
            // What is fired at the end comes behind all records.
            return;
        }
        let all = self.output.fired_of_all(|place| fired(&state.frontiers[place]));
        while let Some(entry) = state.windows.first_entry().filter(|e| e.key().fires_at <= all) {
            let (window, fired) = entry.remove_entry();
            self.queue_window(state, window, fired);
        }
    }

    /// Queues all windows that there are, which every leader has fired.
    pub(super) fn queue_windows(&self, state: &mut GatherState) {
        while let Some((window, fired)) = state.windows.pop_first() {
            self.queue_window(state, window, fired);
        }
    }

    fn queue_window(&self, state: &mut GatherState, window: OutputWindow, fired: FiredRuns) {
        state.windows_fired += self.output.count(&window, fired.windows);
        self.push(state, QueuedItem::OutputWindow(window, fired.runs));
    }
}

/// Up to which watermark all leaders have fired.
fn fired(frontiers: &[i64]) -> i64 {
    frontiers.iter().copied().min().unwrap_or(BEGINNING)
}
