//! Sessions: the rows of a key are joined over slices, as long as they are a gap apart at the most.
//!
//! Sessions fire with the slice with which it is certain that they are over. Where groups share
//! sessions, all keys of a session have the same leader, which tells from the slices of all of them
//! how long it is ([`millstream_state::Prefix`]).

use std::sync::Arc;

use millstream_state::{Load, Pass, RowsRef, Sessions, Table};

use super::combine::{Combine, STEP_ROWS};
use super::fire::{Finisher, ResultRows};
use super::grouping::Grouping;
use super::over::Over;
use super::slices::Slices;
use crate::budget::Usage;
use crate::error::{Error, Result};
use crate::operator::{Firing, Step};
use crate::windowing::{SliceId, WindowId, time_before};

/// The sessions that are open.
pub(super) struct Sessioning {
    sessions: Sessions,
    gap_us: i64,
    /// The words of a row that say when its first and its last record came.
    times: [usize; 2],
    /// The latest slice that is kept, and when what comes after the last is over.
    newest: Option<SliceId>,
    next: Option<WindowId>,
    fire: Option<Fire>,
}

/// What is over when a slice is complete.
struct Fire {
    window: WindowId,
    /// When the slice ends.
    end_us: i64,
    /// The slice, until it has been read; `None`: it is empty.
    slice: Option<Table>,
    /// The pass over rows that is being done ([`Sessions::passes`]), and its next block.
    pass: usize,
    block: usize,
    /// Sessions that are over, as far as they have not been read.
    over: Option<Over>,
    rows: ResultRows,
}

impl Sessioning {
    pub(super) fn new(grouping: &Grouping, gap_us: i64, pool_bytes: usize) -> Sessioning {
        let layout = match grouping.window_word {
            None => grouping.layout.clone(),
            Some(_) => Arc::new(grouping.layout.without_last_key_word()),
        };
        // There are such values where windows are sessions.
        let slots = grouping.session_times.unwrap_or_default().map(|n| layout.values()[n]);
        let [first, last] = slots;
        Sessioning {
            sessions: Sessions::new(layout, first, last, gap_us, pool_bytes)
                .of_parts(grouping.window_word),
            gap_us,
            times: slots.map(|slot| slot.word),
            newest: None,
            next: None,
            fire: None,
        }
    }
}

/// Start, end and event time of sessions.
fn bounds(rows: &RowsRef<'_>, [first, last]: [usize; 2], gap_us: i64) -> [Vec<i64>; 3] {
    let starts = rows.collect(first, |word| word as i64);
    let ends: Vec<i64> = rows.collect(last, |word| (word as i64).saturating_add(gap_us));
    let times = ends.iter().map(|end| time_before(*end)).collect();
    [starts, ends, times]
}

impl Combine for Sessioning {
    fn next_window(&self) -> Option<WindowId> {
        self.next
    }

    fn begin(&mut self, window: WindowId, slices: Vec<(SliceId, Table)>, grouping: &Grouping) {
        debug_assert!(slices.len() <= 1, "what fires with a slice needs no other");
        let slice = slices.into_iter().next_back();
        self.newest = slice.as_ref().map(|(slice, _)| *slice).or(self.newest);
        self.next = self.newest.and_then(|newest| grouping.windowing.window_after(window, newest));
        self.sessions.begin();
        self.fire = Some(Fire {
            window,
            end_us: grouping.windowing.fires_at(window) - grouping.windowing.lateness_us(),
            slice: slice.map(|(_, table)| table),
            pass: 0,
            block: 0,
            over: None,
            rows: ResultRows::of(window, 0, grouping),
        });
    }

    fn firing(&self) -> Option<Firing> {
        let fire = self.fire.as_ref()?;
        let slice_bytes = fire.slice.as_ref().map_or(0, Table::live_bytes);
        Some(Firing {
            window: fire.window,
            live_bytes: (self.sessions.live_bytes() + slice_bytes) as u64,
        })
    }

    fn step(
        &mut self,
        grouping: &Grouping,
        finisher: &Finisher,
        slices: &mut Slices,
    ) -> Result<Step> {
        let Sessioning { sessions, gap_us, times, fire: Some(fire), .. } = self else {
            return Ok(Step::Over);
        };
        let mut spent = 0;
        while !fire.rows.are_left() {
            if spent >= STEP_ROWS {
                return Ok(Step::Working);
            }
            if let Some(over) = &mut fire.over {
                spent += over.read(grouping, finisher, &sessions.over(), &mut fire.rows)?;
                if over.is_read() {
                    fire.over = None;
                    sessions.given();
                }
                continue;
            }
            if sessions.prepare() {
                spent += sessions.rows().min(STEP_ROWS);
                continue;
            }
            if fire.is_over(sessions) {
                return Ok(Step::Over);
            }
            // One block at a time: the sessions that it ends are given before the next.
            spent += fire.take(sessions, slices);
            let over = sessions.over();
            if !over.is_empty() {
                fire.over = Some(Over::new(bounds(&over, *times, *gap_us), finisher));
            }
        }
        let (rows, times) = fire.rows.project_bounded(finisher)?;
        if times.len() != rows.num_rows() {
            return Err(Error::Internal("sessions without their times".into()));
        }
        Ok(Step::Rows { rows, times: Some(times), last: fire.is_over(sessions) })
    }

    fn end(&mut self, slices: &mut Slices) {
        let Some(mut fire) = self.fire.take() else { return };
        fire.slice.take().into_iter().for_each(|table| slices.recycle(table));
        if self.sessions.is_empty() {
            self.sessions.begin();
            (self.newest, self.next) = (None, None);
        }
    }

    fn newest(&self) -> Option<SliceId> {
        None
    }

    fn add_usage(&self, usage: &mut Usage) {
        usage.bytes += self.sessions.bytes() as u64;
        usage.live_bytes += self.sessions.live_bytes() as u64;
        usage.keys += self.sessions.rows() as u64;
        if let Some(fire) = &self.fire {
            if let Some(table) = &fire.slice {
                usage.bytes += table.bytes() as u64;
                usage.live_bytes += table.live_bytes() as u64;
                usage.keys += table.rows() as u64;
            }
            let rows = self.sessions.rows() + fire.slice.as_ref().map_or(0, Table::rows);
            let growth_bytes = self.sessions.growth_bytes(Load::rows(rows.min(STEP_ROWS))) as u64;
            usage.growth_bytes = usage.growth_bytes.max(growth_bytes);
        }
    }

    fn give_back(&mut self) {
        self.sessions.release();
    }
}

impl Fire {
    fn is_over(&self, sessions: &Sessions) -> bool {
        let blocks = |pass: &Pass| sessions.blocks(*pass, self.slice.as_ref());
        let left = self.passes_left(sessions);
        let is_done = left.split_first().is_none_or(|(pass, later)| {
            self.block >= blocks(pass) && later.iter().all(|pass| blocks(pass) == 0)
        });
        is_done && self.over.is_none() && !self.rows.are_left()
    }

    /// The passes over rows that have not been done, the one that is being done first.
    fn passes_left(&self, sessions: &Sessions) -> &'static [Pass] {
        sessions.passes().get(self.pass..).unwrap_or_default()
    }

    /// Looks at the next block of rows; returns how many there were. When the slice has been read,
    /// it goes back to `slices`.
    fn take(&mut self, sessions: &mut Sessions, slices: &mut Slices) -> usize {
        let Some(pass) = self.passes_left(sessions).first() else { return 0 };
        let slice = self.slice.as_ref();
        if self.block < sessions.blocks(*pass, slice) {
            let taken = sessions.take(*pass, self.block, slice, self.end_us);
            // Others of the block come when those that were found have been given.
            if *pass != Pass::Close || !sessions.gives_much() {
                self.block += 1;
            }
            return taken;
        }
        (self.pass, self.block) = (self.pass + 1, 0);
        if !self.passes_left(sessions).iter().any(|pass| pass.reads_slice()) {
            self.slice.take().into_iter().for_each(|table| slices.recycle(table));
        }
        0
    }
}
