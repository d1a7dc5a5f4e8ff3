//! Window assignment: which slice each record of a batch updates, and whether the record is too
//! late for it.
//!
//! A record is late if the watermark just before it has closed all windows that it would count for.
//! So the answer depends on the order of the records, but not on how they are cut into batches.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::error::{Error, Result};
use crate::event_time::Running;
use crate::operator::{BySlice, Dropped};
use crate::prepare::BatchTimes;
use crate::stamped::Stamped;
use crate::windowing::{Bounds, Fate, SliceId, Windowing};

/// Records that are looked at together: mostly they share a slice, and none can be late.
const BLOCK_RECORDS: usize = 64;

/// Goes over the records of one batch.
struct Assigner<'a> {
    windowing: &'a Windowing,
    times: &'a BatchTimes,
    running: Running,
    by_slice: &'a mut BySlice,
    /// Where each slice stands in `by_slice`.
    places: BTreeMap<SliceId, usize>,
    dropped: Dropped,
    is_late: &'a mut dyn FnMut(Late),
    /// The slice of the record before, and its place in `by_slice`: neighbours mostly share
    /// theirs.
    slice: Bounds,
    place: usize,
}

/// A record that is late for all of its windows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Late {
    /// Its position in the batch.
    pub(crate) row: u32,
    /// Where the last of its windows ends; where its own time decides, `None`.
    pub(crate) end: Option<i64>,
    /// Its event time.
    pub(crate) time: i64,
    /// The split's watermark just before the record.
    pub(crate) watermark: i64,
}

/// Assigns those records of a batch that stand at `selected` (ascending) to their slices. All
/// records move the watermark on, which is at `stamp` before the first.
pub(crate) fn assign(
    windowing: &Windowing,
    times: &BatchTimes,
    stamp: i64,
    selected: &[u32],
    by_slice: &mut BySlice,
) -> Dropped {
    assigned(windowing, (times, stamp), selected, by_slice, &mut |_| {})
}

/// The slice of a whole batch, if it has just one and no record can be late for it.
pub(crate) fn single_slice(windowing: &Windowing, batch: &Stamped) -> Option<SliceId> {
    if windowing.is_whole() {
        return Some(SliceId::WHOLE);
    }
    let (min, max) = batch.prepared.times.as_ref()?.bounds?;
    let slice = windowing.common_slice(min, max)?;
    windowing.all_in_time(&slice, min, batch.after).then_some(slice.slice)
}

/// Drops of windows among the records of a batch at `places` (ascending); `None`: among all. Each
/// late record is given to `is_late`.
pub fn dropped(
    windowing: &Windowing,
    batch: &Stamped,
    places: Option<&[u32]>,
    is_late: &mut dyn FnMut(Late),
) -> Result<Dropped> {
    if single_slice(windowing, batch).is_some() {
        return Ok(Dropped::default());
    }
    let times = event_times(batch)?;
    let all: Vec<u32>;
    let selected = match places {
        Some(places) => places,
        None => {
            // A batch has far fewer than 2^32 rows.
            all = (0..times.times.len() as u32).collect();
            &all
        }
    };
    let times = (times, batch.stamp);
    Ok(assigned(windowing, times, selected, &mut BySlice::new(), is_late))
}

/// The event times of a batch whose records go into windows.
pub(crate) fn event_times(batch: &Stamped) -> Result<&BatchTimes> {
    let times = batch.prepared.times.as_ref();
    times.ok_or_else(|| Error::Internal("windows without event times".into()))
}

fn assigned<'a>(
    windowing: &'a Windowing,
    (times, stamp): (&'a BatchTimes, i64),
    selected: &[u32],
    by_slice: &'a mut BySlice,
    is_late: &'a mut dyn FnMut(Late),
) -> Dropped {
    by_slice.clear();
    let running = times.running(stamp);
    let (dropped, slice, place) = (Dropped::default(), Bounds::NOTHING, usize::MAX);
    let places = BTreeMap::new();
    let mut assigner =
        Assigner { windowing, times, running, by_slice, places, dropped, is_late, slice, place };
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
    /// Assigns a block of records that share a slice for which none can be late; false if they do
    /// not.
    fn together(&mut self, block: Range<usize>, selected: &[u32]) -> bool {
        let Some((min, max)) = self.times.bounds_of(block.clone()) else { return false };
        let Some(watermark) = self.times.watermark_at(max) else { return false };
        let before = self.running.watermark;
        self.enter(min);
        let in_time = |time, watermark| self.windowing.all_in_time(&self.slice, time, watermark);
        if max >= self.slice.end {
            // Of several windows that a slice packs. In order, none comes when the watermark is
            // beyond its own time.
            let slice = self.windowing.slice_of(max).slice;
            let all_in_time = slice == self.slice.slice
                && watermark <= max
                && in_time(min, before)
                && self.times.times.are_in_order(block);
            return all_in_time && self.take(selected, before.max(watermark));
        }
        // Where records are in order, each moves the watermark on by its own time, so the one after
        // it is no later than it was itself.
        let all_in_time = in_time(min, before.max(watermark))
            || in_time(min, before)
                && in_time(max, watermark)
                && self.times.times.are_in_order(block);
        all_in_time && self.take(selected, before.max(watermark))
    }

    /// Takes records of the present slice, behind which the watermark is here. True.
    fn take(&mut self, selected: &[u32], watermark: i64) -> bool {
        self.running.watermark = watermark;
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
            match self.windowing.fate(&self.slice, time, before) {
                Fate::InTime => self.rows().push(row as u32),
                Fate::Partly(slice) => {
                    self.dropped.partly_late += 1;
                    self.rows_of(slice).push(row as u32);
                }
                Fate::Late => self.late(row as u32, time, before),
            }
        }
    }

    /// A record of the present slice, just before which the watermark is here.
    #[cold]
    fn late(&mut self, row: u32, time: i64, watermark: i64) {
        self.dropped.late += 1;
        let end = self.windowing.last_end_of(&self.slice);
        (self.is_late)(Late { row, end, time, watermark });
    }

    /// Makes the slice of `time` the present one.
    fn enter(&mut self, time: i64) {
        if !self.slice.contains(time) {
            self.slice = self.windowing.slice_of(time);
            self.place = usize::MAX;
        }
    }

    /// The records of the present slice.
    fn rows(&mut self) -> &mut Vec<u32> {
        if self.place == usize::MAX {
            self.place = self.place_of(self.slice.slice);
        }
        &mut self.by_slice[self.place].1
    }

    /// The records of any slice.
    #[cold]
    fn rows_of(&mut self, slice: SliceId) -> &mut Vec<u32> {
        let place = self.place_of(slice);
        &mut self.by_slice[place].1
    }

    /// Where a slice stands in `by_slice`.
    fn place_of(&mut self, slice: SliceId) -> usize {
        let next = self.by_slice.len();
        let place = *self.places.entry(slice).or_insert(next);
        if place == next {
            self.by_slice.push((slice, Vec::new()));
        }
        place
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{RecordBatch, TimestampMicrosecondArray};

    use super::*;
    use crate::plan::{EventTime, Tumble, Watermark};
    use crate::prepare::{Limits, batch_times};

    const DELAY_US: i64 = 30;

    fn times_of(times: &[Option<i64>], limit: i64) -> BatchTimes {
        let column: TimestampMicrosecondArray = times.iter().copied().collect();
        let batch = RecordBatch::try_from_iter_with_nullable([("ts", Arc::new(column) as _, true)]);
        let watermark = Watermark::Delay(DELAY_US);
        let event_time = EventTime { column: 0, watermark, zone: None, idle_timeout_us: None };
        batch_times(&event_time, &batch.unwrap(), &Limits::up_to(limit), 0).unwrap()
    }

    /// However many records are looked at together, each is judged by the watermark just before it,
    /// which those move on too that a filter has taken out, but not those that lie too far ahead to
    /// be believed.
    #[test]
    fn every_record_is_judged_by_the_watermark_before_it() {
        let mut state = 7u64;
        let mut below = |bound: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            ((state >> 33) % bound) as i64
        };
        let (mut late, mut null, mut ahead, mut by_slice) = (0, 0, 0, BySlice::new());
        for round in 0..4000 {
            let window = Tumble { size_us: [40, 300, 1000][round % 3], offset_us: below(10) };
            let lateness_us = [0, 0, 25][below(3) as usize];
            let (step, behind) =
                ([2, 4, 20][below(3) as usize], [20, 200, 1500][below(3) as usize]);
            let (nulls, passing) = (round % 4 == 0, [1, 2, 10][below(3) as usize]);
            let seldom = [8, 64][below(2) as usize];
            let mut now = below(1000);
            // Some rounds have records far ahead, often whole blocks of them.
            let far = below(300)..below(600);
            let limit = [i64::MAX - 1, now + below(1500), now + 100_000][below(3) as usize];
            let times: Vec<Option<i64>> = (0..below(300))
                .map(|row| {
                    now += below(step);
                    let back = if below(seldom) == 0 { below(behind) } else { 0 };
                    let ahead = if far.contains(&row) { 1_000_000 } else { 0 };
                    (!nulls || below(30) > 0).then_some(now - back + ahead)
                })
                .collect();
            let selected: Vec<u32> =
                (0..times.len() as u32).filter(|_| below(passing) == 0).collect();
            // The stamp: nothing yet, far behind, or at the very time when a window fires.
            let first = times.iter().flatten().next().map_or(0, |t| *t);
            let start = (first - window.offset_us).div_euclid(window.size_us);
            let fires_at = (start + 1) * window.size_us + window.offset_us + lateness_us;
            let stamp = [i64::MIN, first - 100, fires_at][below(3) as usize];
            let mut expected: BTreeMap<i64, Vec<u32>> = BTreeMap::new();
            let (mut dropped, mut watermark) = (Dropped::default(), stamp);
            for (row, time) in times.iter().enumerate() {
                let before = watermark;
                let carried = time.map(|t| t - DELAY_US);
                watermark = carried.filter(|w| *w <= limit).map_or(watermark, |w| watermark.max(w));
                ahead += i32::from(carried.is_some_and(|w| w > limit));
                if selected.binary_search(&(row as u32)).is_err() {
                    continue;
                }
                let Some(time) = time else {
                    dropped.null_time += 1;
                    dropped.first_null_time.get_or_insert(row);
                    continue;
                };
                let start = (time - window.offset_us).div_euclid(window.size_us) * window.size_us
                    + window.offset_us;
                if start + window.size_us + lateness_us <= before {
                    dropped.late += 1;
                } else {
                    expected.entry(start).or_default().push(row as u32);
                }
            }
            let times = times_of(&times, limit);
            let windowing = Windowing::new(Some(window.into()), lateness_us);
            let got = assign(&windowing, &times, stamp, &selected, &mut by_slice);
            assert_eq!(got, dropped, "round {round}");
            let by_start =
                |(slice, rows): &(SliceId, Vec<u32>)| (slice.word() as i64, rows.clone());
            let slices: BTreeMap<i64, Vec<u32>> = by_slice.iter().map(by_start).collect();
            assert_eq!((slices, by_slice.len()), (expected.clone(), expected.len()));
            late += dropped.late;
            null += dropped.null_time;
        }
        assert!(late > 1000 && null > 1000, "{late} late, {null} without a time");
        assert!(ahead > 10_000, "{ahead} too far ahead");
    }
}
