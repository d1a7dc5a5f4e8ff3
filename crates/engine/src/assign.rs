//! Window assignment: to which window each record of a batch belongs, and whether it is too late for it.
//!
//! A record is late if its window has fired by the watermark just before the record, so the answer
//! depends on the order of records, but not on how they are cut into batches.

use std::ops::Range;

use crate::event_time::Running;
use crate::plan::Tumble;
use crate::prepare::BatchTimes;

/// Records of a batch that did not make it into a window.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Dropped {
    pub(crate) late: u64,
    pub(crate) null_time: u64,
    pub(crate) unusable_time: u64,
    /// The first rows of the last two kinds.
    pub(crate) first_null_time: Option<usize>,
    pub(crate) first_unusable_time: Option<usize>,
}

impl Dropped {
    #[cold]
    fn without_time(&mut self, row: usize, null: bool) {
        let (count, first) = match null {
            true => (&mut self.null_time, &mut self.first_null_time),
            false => (&mut self.unusable_time, &mut self.first_unusable_time),
        };
        *count += 1;
        first.get_or_insert(row);
    }
}

/// Per window start: the positions of its records in the batch, ascending.
pub(crate) type BySlice = Vec<(i64, Vec<u32>)>;

/// Records that are looked at together: mostly they share a window, and none can be late.
const BLOCK_RECORDS: usize = 64;

/// Goes over the records of one batch.
struct Assigner<'a> {
    window: &'a Tumble,
    lateness_us: i64,
    times: &'a BatchTimes,
    running: Running,
    by_slice: &'a mut BySlice,
    dropped: Dropped,
    /// The window of the record before, and its place in `by_slice`: neighbours mostly share theirs.
    slice: usize,
    start: i64,
    end: i64,
}

/// Assigns those records of a batch that stand at `selected` (ascending) to their windows. All records
/// move the watermark on, which is at `stamp` before the first.
pub(crate) fn assign(
    window: &Tumble,
    lateness_us: i64,
    times: &BatchTimes,
    stamp: i64,
    selected: &[u32],
    by_slice: &mut BySlice,
) -> Dropped {
    by_slice.clear();
    let running = times.running(stamp);
    let (dropped, slice, start, end) = (Dropped::default(), usize::MAX, 0, i64::MIN);
    let mut assigner =
        Assigner { window, lateness_us, times, running, by_slice, dropped, slice, start, end };
    let (mut rest, records) = (selected, times.times.len());
    for first in (0..records).step_by(BLOCK_RECORDS) {
        let block = first..(first + BLOCK_RECORDS).min(records);
        let here = &rest[..rest.len().min(BLOCK_RECORDS)];
        let (here, _) = here.split_at(here.partition_point(|row| (*row as usize) < block.end));
        rest = &rest[here.len()..];
        if !assigner.together(block.clone(), here) {
            assigner.one_by_one(block, here);
        }
    }
    assigner.dropped
}

impl Assigner<'_> {
    /// Assigns a block of records that share a window for which none can be late; false if they do not.
    fn together(&mut self, block: Range<usize>, selected: &[u32]) -> bool {
        let Some((min, max)) = self.times.bounds_of(block) else { return false };
        let Some(watermark) = self.times.watermark_at(max) else { return false };
        let after = self.running.watermark.max(watermark);
        self.enter(min);
        if max >= self.end || self.fires_at() <= after {
            return false;
        }
        self.running.watermark = after;
        if !selected.is_empty() {
            self.rows().extend_from_slice(selected);
        }
        true
    }

    fn one_by_one(&mut self, block: Range<usize>, mut selected: &[u32]) {
        for row in block {
            // The watermark just before the record decides about it.
            let before = self.running.watermark;
            if let Some(watermark) = self.times.watermark(row) {
                self.running.advance(watermark);
            }
            if selected.first() != Some(&(row as u32)) {
                continue;
            }
            selected = &selected[1..];
            let times = &self.times.times;
            let Some(time) = times.us(row) else {
                self.dropped.without_time(row, times.is_null(row));
                continue;
            };
            self.enter(time);
            if self.fires_at() <= before {
                self.dropped.late += 1;
            } else {
                self.rows().push(row as u32);
            }
        }
    }

    /// Makes the window of `time` the present one.
    fn enter(&mut self, time: i64) {
        if !(self.start..self.end).contains(&time) {
            self.start = self.window.start_of(time);
            self.end = self.start.saturating_add(self.window.size_us);
            self.slice = usize::MAX;
        }
    }

    fn fires_at(&self) -> i64 {
        self.end.saturating_add(self.lateness_us)
    }

    /// The records of the present window.
    fn rows(&mut self) -> &mut Vec<u32> {
        if self.slice == usize::MAX {
            let known = self.by_slice.iter().position(|(start, _)| *start == self.start);
            self.slice = known.unwrap_or_else(|| {
                self.by_slice.push((self.start, Vec::new()));
                self.by_slice.len() - 1
            });
        }
        &mut self.by_slice[self.slice].1
    }
}
