//! Firing pairs: each row of one side of a group next to each of the other side. A step makes some
//! of them, so a group of many rows does not keep the worker from anything else.

use std::iter::repeat_n;
use std::ops::Range;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow::compute::take_arrays;
use arrow::datatypes::{DataType, SchemaRef};

use crate::error::Result;
use crate::operator::stateless::Taking;
use crate::plan;

/// Pairs that are made in a step, at the most, and about how many bytes of them.
const PAIRS_MAX: usize = 8192;
const PAIRS_BYTES: usize = 64 << 20;

/// Which rows of a group are on which side.
#[derive(Debug)]
pub(super) struct Pairing {
    sides: [Taking; 2],
    /// Of pairs.
    schema: SchemaRef,
}

/// Rows of a side.
struct SideRows {
    rows: RecordBatch,
    /// Where they stand in `rows`, if these have others, too.
    places: Option<Vec<u32>>,
}

/// Pairs that are to be made.
pub(super) struct Paired {
    sides: [SideRows; 2],
    /// The rows of groups that have both, the next last.
    groups: Vec<Group>,
    /// So many are made at a time.
    most: usize,
}

/// Rows of a group, by side, by their number among those of their side, and their event time.
struct Group {
    left: Range<u32>,
    right: Range<u32>,
    /// The right row that comes next, for the first left one.
    next: u32,
    time: Option<i64>,
}

impl Pairing {
    pub(super) fn new(pairs: &plan::Pairs, schema: &SchemaRef) -> Pairing {
        let side =
            |side: &plan::PairSide| Taking::new(side.filter.clone(), Some(side.project.clone()));
        Pairing { sides: pairs.sides.each_ref().map(side), schema: schema.clone() }
    }

    /// The pairs of some rows; `of` are the rows' groups, ascending, and `times` the event times,
    /// if any. `None` if there are no pairs.
    pub(super) fn pairs(
        &self,
        rows: &RecordBatch,
        of: &[u32],
        times: &[i64],
    ) -> Result<Option<Paired>> {
        let (mut sides, mut places) = (Vec::new(), Vec::new());
        for side in &self.sides {
            // Rows that are there already are copied once, into pairs.
            let in_place = side.takes_in_place();
            let taken = if in_place { side.take_in_place(rows)? } else { side.take(rows)? };
            let all = || (0..rows.num_rows() as u32).collect();
            let of_side = taken.places.clone().unwrap_or_else(all);
            places.push(of_side);
            sides.push(SideRows { rows: taken.rows, places: taken.places.filter(|_| in_place) });
        }
        let groups = groups(&places[0], &places[1], of, times);
        Ok(match <[SideRows; 2]>::try_from(sides) {
            Ok(sides) if !groups.is_empty() => Some(Paired::new(sides, groups)),
            _ => None,
        })
    }

    /// Rows of a group as shown by a side.
    pub(super) fn rows_of(&self, side: usize, rows: &RecordBatch) -> Result<RecordBatch> {
        self.sides[side].rows(rows)
    }

    /// All pairs of rows of the sides of a group.
    pub(super) fn all_pairs(sides: [RecordBatch; 2], time: Option<i64>) -> Option<Paired> {
        let [left, right] = sides.each_ref().map(|rows| 0..rows.num_rows() as u32);
        if left.is_empty() || right.is_empty() {
            return None;
        }
        let group = Group { left, next: right.start, right, time };
        Some(Paired::new(sides.map(|rows| SideRows { rows, places: None }), vec![group]))
    }
}

/// The groups that have rows on both sides, the first last.
fn groups(left: &[u32], right: &[u32], of: &[u32], times: &[i64]) -> Vec<Group> {
    let group_of = |place: &u32| of.get(*place as usize).copied();
    let (mut groups, mut at) = (Vec::new(), 0);
    let mut start = 0;
    for rows in left.chunk_by(|a, b| group_of(a) == group_of(b)) {
        let (group, from) = (group_of(&rows[0]), start as u32);
        start += rows.len();
        at += right[at..].iter().take_while(|place| group_of(place) < group).count();
        let others = right[at..].iter().take_while(|place| group_of(place) == group).count();
        if others > 0 {
            let right = at as u32..(at + others) as u32;
            let time = times.get(rows[0] as usize).copied();
            groups.push(Group { left: from..start as u32, next: right.start, right, time });
        }
        at += others;
    }
    groups.reverse();
    groups
}

/// How many bytes a value of a column takes at the most; of nested ones about.
fn widest(column: &ArrayRef) -> usize {
    let longest = |offsets: &[i32]| {
        offsets.windows(2).map(|ends| (ends[1] - ends[0]) as usize).max().unwrap_or(0)
    };
    match column.data_type() {
        DataType::Utf8 => longest(column.as_string::<i32>().value_offsets()),
        DataType::Binary => longest(column.as_binary::<i32>().value_offsets()),
        other => other.primitive_width().unwrap_or_else(|| {
            let bytes = column.get_array_memory_size();
            bytes.min(16 * bytes / column.len().max(1))
        }),
    }
}

impl Paired {
    fn new(sides: [SideRows; 2], groups: Vec<Group>) -> Paired {
        let columns = sides.iter().flat_map(|side| side.rows.columns());
        let widest: usize = columns.map(widest).sum();
        Paired { most: (PAIRS_BYTES / widest.max(1)).clamp(1, PAIRS_MAX), sides, groups }
    }

    /// How many come next.
    pub(super) fn next_rows(&self) -> usize {
        let left = |group: &Group| group.left.len() * group.right.len();
        self.groups.iter().rev().map(left).take(self.most).sum::<usize>().min(self.most)
    }

    /// Whether all have been made.
    pub(super) fn is_over(&self) -> bool {
        self.groups.is_empty()
    }

    /// The next pairs, and their event times, if they have such.
    pub(super) fn next(&mut self, pairing: &Pairing) -> Result<(RecordBatch, Vec<i64>)> {
        let most = self.next_rows();
        let (mut left, mut right) = (Vec::with_capacity(most), Vec::with_capacity(most));
        let mut times = Vec::new();
        while let (true, Some(group)) = (left.len() < self.most, self.groups.last_mut()) {
            let pairs = group.left.len();
            if group.right.len() == 1 && left.len() + pairs <= self.most {
                // All at once, as mostly.
                left.extend(group.left.clone());
                right.extend(repeat_n(group.next, pairs));
                times.extend(group.time.into_iter().flat_map(|time| repeat_n(time, pairs)));
                self.groups.pop();
                continue;
            }
            let to = group.right.end.min(group.next + (self.most - left.len()) as u32);
            let count = (to - group.next) as usize;
            left.extend(repeat_n(group.left.start, count));
            right.extend(group.next..to);
            times.extend(group.time.into_iter().flat_map(|time| repeat_n(time, count)));
            group.next = to;
            if to == group.right.end {
                (group.left.start, group.next) = (group.left.start + 1, group.right.start);
            }
            if group.left.is_empty() {
                self.groups.pop();
            }
        }
        let count = left.len();
        let mut columns: Vec<ArrayRef> = Vec::new();
        for (side, mut rows) in self.sides.iter().zip([left, right]) {
            if let Some(places) = &side.places {
                rows.iter_mut().for_each(|row| *row = places[*row as usize]);
            }
            columns.extend(take_arrays(side.rows.columns(), &UInt32Array::from(rows), None)?);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(count));
        let schema = pairing.schema.clone();
        Ok((RecordBatch::try_new_with_options(schema, columns, &options)?, times))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_with_rows_on_both_sides_have_pairs() {
        // The groups 2, 3, 5 and 7, of which 3 has no right row, 5 no left one.
        let of = [2, 2, 2, 3, 3, 5, 7, 7];
        let times: Vec<i64> = (0..8).map(|row| 10 * row).collect();
        let groups = groups(&[0, 2, 3, 4, 7], &[1, 5, 6], &of, &times);
        let told = |group: &Group| (group.left.clone(), group.right.clone(), group.time);
        let told: Vec<_> = groups.iter().rev().map(told).collect();
        assert_eq!(told, [(0..2, 0..1, Some(0)), (4..5, 2..3, Some(70))]);
    }
}
