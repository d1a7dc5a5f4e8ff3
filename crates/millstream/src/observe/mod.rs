//! Snapshots of a running job: the same source for the progress line, `millstream why`, metrics and
//! the page.
//!
//! [`JobHandle::observe`](crate::JobHandle::observe) and [`Stopper::observe`](crate::Stopper)
//! take a [`Snapshot`]; [`why`] says in words why no rows come.

mod why;

pub use millstream_engine::observe::*;
pub use why::{Reason, behind_text, duration, time_text, why};

/// How much of the input has been read, in a thousand; `None` where that is not known of all
/// sources that have not ended, or where a source is a log without end.
pub fn share_read(snapshot: &Snapshot) -> Option<u64> {
    let mut sum = (0u128, 0u128);
    for split in snapshot.splits.iter().filter(|split| !split.elsewhere) {
        let source = snapshot.sources.get(split.source)?;
        match split.progress {
            Some(_) if lag(snapshot, split).is_some() => return None,
            Some(extent) => {
                let done = if split.ended || source.ended { extent.of } else { extent.done };
                sum = (sum.0 + u128::from(done), sum.1 + u128::from(extent.of));
            }
            None if split.ended || source.ended => {}
            None => return None,
        }
    }
    (sum.1 > 0).then(|| (sum.0 * 1000 / sum.1).min(1000) as u64)
}

/// The lag of a split whose records come without end, if the split knows how many there are: the
/// number of records that are there and have not been read.
pub fn lag(snapshot: &Snapshot, split: &Split) -> Option<u64> {
    let is_endless = snapshot.sources.get(split.source).is_some_and(|source| !source.bounded);
    let extent = split.progress.filter(|extent| is_endless && !split.elsewhere && !extent.bytes)?;
    Some(extent.of.saturating_sub(extent.done))
}

/// The lag of several splits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lag<'a> {
    /// Of all of them together, in records.
    pub records: u64,
    /// The split with the greatest lag, and its lag.
    pub furthest: (&'a Split, u64),
}

/// The lag of a source, by number, or of all sources; `None` where no split knows its lag.
pub fn lag_of(snapshot: &Snapshot, source: Option<usize>) -> Option<Lag<'_>> {
    let splits = snapshot.splits.iter().filter(|s| source.is_none_or(|of| of == s.source));
    let lags = splits.filter_map(|split| Some((split, lag(snapshot, split)?)));
    lags.fold(None, |all: Option<Lag<'_>>, (split, lag)| {
        let Some(Lag { records, furthest }) = all else {
            return Some(Lag { records: lag, furthest: (split, lag) });
        };
        // Of equal ones the first.
        let furthest = if lag > furthest.1 { (split, lag) } else { furthest };
        Some(Lag { records: records.saturating_add(lag), furthest })
    })
}

/// A split with its table: `clicks (datagen, split 0)`; alone where it bears the table's name, as
/// of `FROM 'clicks.csv'`.
pub fn split_name(snapshot: &Snapshot, split: &Split) -> String {
    let table = snapshot.sources.get(split.source).map_or("", |source| &source.name);
    match split.name.ends_with(table) {
        true => split.name.clone(),
        false => format!("{table} ({})", split.name),
    }
}

/// Number of open windows: of the stages that feed outputs, or else of the last stage with open
/// windows. `true`: there are more.
pub fn open_windows(snapshot: &Snapshot) -> (usize, bool) {
    let of = |stage: &StageStatus| (stage.open.len(), stage.open_more);
    snapshot
        .stages
        .iter()
        .map(of)
        .fold((0, false), |(sum, more), (open, and_more)| (sum.max(open), more | and_more))
}

/// The least watermark of the sources that have not ended, and how far it is behind the clock, if
/// records come as they happen.
pub fn watermark(snapshot: &Snapshot) -> Option<(i64, Option<i64>)> {
    let sources = snapshot.sources.iter().filter(|source| !source.ended);
    let (at, live) = sources.filter_map(|s| Some((s.watermark_us?, s.live))).min()?;
    Some((at, live.then(|| snapshot.now_us - at)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Extent;

    fn split(progress: Option<(u64, u64)>, ended: bool) -> Split {
        let progress = progress.map(|(done, of)| Extent { done, of, bytes: true });
        Split { progress, ended, ..Split::default() }
    }

    #[test]
    fn the_share_that_has_been_read_is_known_where_it_is_of_all_splits() {
        let of = |splits| {
            share_read(&Snapshot {
                sources: vec![Source::default()],
                splits,
                ..Snapshot::default()
            })
        };
        assert_eq!(of(vec![split(Some((1, 4)), false), split(Some((1, 4)), false)]), Some(250));
        // A split that has ended counts as read, regardless of its last report.
        assert_eq!(of(vec![split(Some((1, 4)), true), split(Some((0, 4)), false)]), Some(500));
        assert_eq!(of(vec![split(Some((4, 4)), false), split(None, false)]), None);
        assert_eq!(of(vec![split(Some((2, 4)), false), split(None, true)]), Some(500));
        assert_eq!(of(vec![split(Some((0, 0)), false)]), None);
        assert_eq!(of(vec![]), None);
    }

    #[test]
    fn the_lag_is_what_endless_logs_have_beyond_what_was_read() {
        let split = |source, name: &str, done| Split {
            name: name.into(),
            source,
            progress: Some(Extent { done, of: 100, bytes: false }),
            ..Split::default()
        };
        let mut snapshot = Snapshot {
            sources: vec![Source::default(), Source { bounded: true, ..Source::default() }],
            splits: vec![split(0, "t-0", 90), split(0, "t-1", 30), split(0, "t-2", 30)],
            ..Snapshot::default()
        };
        snapshot.splits.push(split(1, "rows", 0));
        let furthest = (&snapshot.splits[1], 70);
        assert_eq!(lag_of(&snapshot, None), Some(Lag { records: 150, furthest }));
        assert_eq!(lag_of(&snapshot, Some(0)), lag_of(&snapshot, None));
        assert_eq!(lag_of(&snapshot, Some(1)), None, "what ends has a share, and no lag");
        assert_eq!(share_read(&snapshot), None);
        // Another process reads the split, and tells its lag.
        snapshot.splits[1].elsewhere = true;
        assert_eq!(
            lag_of(&snapshot, None).map(|lag| (lag.records, lag.furthest.1)),
            Some((80, 70))
        );
        // More was read than the broker had told of.
        snapshot.splits[0].progress = Some(Extent { done: 9, of: 7, bytes: false });
        assert_eq!(lag(&snapshot, &snapshot.splits[0]), Some(0));
        // Bytes of a followed file are no records.
        snapshot.splits[0].progress = Some(Extent { done: 5, of: 7, bytes: true });
        assert_eq!(lag(&snapshot, &snapshot.splits[0]), None);
    }

    #[test]
    fn a_snapshot_survives_its_text() {
        let snapshot = Snapshot {
            stages: vec![StageStatus {
                inputs: vec![Input::Source(0), Input::Stage(1)],
                clock_us: vec![None, Some(i64::MAX)],
                ..StageStatus::default()
            }],
            workers: vec![WorkerStatus { doing: Doing::Credit, ..WorkerStatus::default() }],
            ..Snapshot::default()
        };
        let text = serde_json::to_string(&snapshot).unwrap();
        assert_eq!(serde_json::from_str::<Snapshot>(&text).unwrap(), snapshot);
    }
}
