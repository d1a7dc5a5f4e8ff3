//! Where the splits of a source begin.

use std::collections::BTreeSet;
use std::task::Waker;

use crate::error::Result;
use crate::table::{Position, SourceMarks, Split, SplitMark, SplitPoll};
use millstream_operators::event_time::BEGINNING;

/// The names under which tables stand in [`JobMarks`](crate::table::JobMarks).
pub fn table_names<'n>(names: impl Iterator<Item = &'n str> + Clone) -> Vec<String> {
    let numbered =
        |(at, name): (usize, &str)| match names.clone().take(at).filter(|n| *n == name).count() {
            0 => name.to_string(),
            before => format!("{name}.{}", before + 1),
        };
    names.clone().enumerate().map(numbered).collect()
}

/// A split that had ended when an earlier job stood at a cut, and is there no more. Its rows may
/// wait for their turn, and it must not be read if it comes back.
struct Gone(String, Position);

impl Split for Gone {
    fn name(&self) -> &str {
        &self.0
    }
    fn position(&self) -> Position {
        self.1.clone()
    }
    fn poll_next(&mut self, _: i64, _: &Waker) -> Result<SplitPoll> {
        Ok(SplitPoll::Ended)
    }
}

/// In place of a split that has not joined.
pub(super) fn no_split() -> Box<dyn Split> {
    Box::new(Gone(String::new(), Position::default()))
}

/// The first number that later splits of a source may have.
pub(super) fn free_number(splits: &[Box<dyn Split>], from: Option<&SourceMarks>) -> u32 {
    let known = from.iter().flat_map(|from| &from.splits);
    let is_new = |name: &&str| from.is_none_or(|from| !from.splits.contains_key(*name));
    let new = splits.iter().map(|split| split.name()).filter(is_new).count() as u32;
    known.map(|(_, mark)| mark.number + 1).max().unwrap_or(0) + new
}

/// The splits of a source in the order of their numbers, which is the order of their rows whatever
/// the order in which they are opened now.
pub(super) fn marked(
    mut splits: Vec<Box<dyn Split>>,
    from: Option<SourceMarks>,
) -> Vec<(Box<dyn Split>, SplitMark)> {
    splits.extend(gone(&splits, from.as_ref()));
    let marks = of(&splits, from);
    let mut marked: Vec<_> = splits.into_iter().zip(marks).collect();
    marked.sort_by_key(|(_, mark)| mark.number);
    marked
}

/// The splits of an earlier job that had ended, and are there no more.
fn gone(splits: &[Box<dyn Split>], from: Option<&SourceMarks>) -> Vec<Box<dyn Split>> {
    let there: BTreeSet<&str> = splits.iter().map(|split| split.name()).collect();
    let known = from.iter().flat_map(|from| &from.splits);
    let gone = known.filter(|(name, mark)| mark.ended && !there.contains(name.as_str()));
    let split = |(name, mark): (&String, &SplitMark)| -> Box<dyn Split> {
        Box::new(Gone(name.clone(), mark.position.clone()))
    };
    gone.map(split).collect()
}

/// Where each split of a source begins. A split that the earlier job did not have begins with the
/// source's low watermark, and with the latest time of the clock that the job has seen. The split's
/// number is above all known numbers.
fn of(splits: &[Box<dyn Split>], from: Option<SourceMarks>) -> Vec<SplitMark> {
    let known = from.iter().flat_map(|from| from.splits.values());
    let clock_us = known.clone().map(|mark| mark.clock_us).max().unwrap_or(i64::MIN);
    let mut free = known.map(|mark| mark.number + 1).max().unwrap_or(0);
    let mut mark = |split: &dyn Split| {
        let known = from.as_ref().and_then(|from| from.splits.get(split.name()));
        known.cloned().unwrap_or_else(|| {
            free += 1;
            SplitMark {
                position: split.position(),
                chunks: 0,
                records: 0,
                watermark_us: from.as_ref().map_or(BEGINNING, |from| from.low_us),
                clock_us,
                number: free - 1,
                ended: false,
            }
        })
    };
    splits.iter().map(|split| mark(split.as_ref())).collect()
}
