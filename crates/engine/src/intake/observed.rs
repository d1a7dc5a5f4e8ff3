//! Splits as the observer sees them.

use super::split::SplitState;
use super::{Intake, IntakeState, SplitIn};
use crate::observe::{Source, Split, time};

impl Intake {
    /// The splits as they are now.
    pub(crate) fn observed_splits(&self) -> Vec<Split> {
        let now = self.env.now_us();
        // A source may have got more meanwhile, even if no worker looks.
        let progress = |split: &SplitIn| split.reader.try_lock().ok()?.progress();
        let progress: Vec<_> = self.splits.iter().map(progress).collect();
        let state = self.lock();
        let splits = self.splits.iter().zip(&state.splits).zip(progress);
        splits
            .map(|((split, s), progress)| Split {
                // A spare split has no name before it joins.
                name: match s.elsewhere && s.is_spare {
                    true => String::new(),
                    false => split.name.get().cloned().unwrap_or_default(),
                },
                source: split.source,
                watermark_us: time(s.watermark),
                holds_us: time(s.low()),
                records: s.records,
                bytes: s.bytes,
                progress: progress.or(s.progress),
                silent_us: (now - s.last_data_us).max(0) as u64,
                waits: s.pending && s.outstanding() == 0,
                ready: s.ready.len(),
                idle: s.idle,
                ended: s.exhausted() && !s.elsewhere,
                elsewhere: s.elsewhere,
            })
            .collect()
    }

    /// The splits of a source that this process reads.
    fn read_here<'s>(&self, state: &'s IntakeState, source: usize) -> Vec<&'s SplitState> {
        let splits = self.splits_of(source).map(|split| &state.splits[split]);
        splits.filter(|s| !s.elsewhere).collect()
    }

    /// Logs which sources this process reads.
    pub(crate) fn tell_sources(&self) {
        for (number, source) in self.sources.iter().enumerate() {
            let splits = self.read_here(&self.lock(), number).len();
            let (table, source) = (source.name.as_str(), source.about.as_str());
            if splits > 0 {
                tracing::info!(table, source, splits, "a source has been opened");
            }
        }
    }

    /// Logs that nothing more comes of a source, if this process has read of it.
    pub(super) fn tell_end(&self, number: usize) {
        let (splits, records) = {
            let state = self.lock();
            let splits = self.read_here(&state, number);
            (splits.len(), splits.iter().map(|s| s.own_records).sum::<u64>())
        };
        if splits > 0 {
            let source = &self.sources[number];
            let (table, source) = (source.name.as_str(), source.about.as_str());
            tracing::info!(table, source, splits, records, "a source has ended");
        }
    }

    /// The sources as they are now.
    pub(crate) fn observed_sources(&self) -> Vec<Source> {
        let state = self.lock();
        let sources = self.sources.iter().zip(&state.sources).enumerate();
        let source = |(number, (source, s)): (usize, (&super::SourceIn, &super::SourceState))| {
            let splits = self.splits.iter().zip(&state.splits);
            let mut splits = splits.filter(|(split, _)| split.source == number);
            Source {
                name: source.name.clone(),
                about: source.about.clone(),
                bounded: source.bounded,
                live: source.live,
                watermark_us: time(s.low),
                idle_timeout_us: source.idle_timeout_us.filter(|us| *us < i64::MAX),
                ended: s.closed || splits.all(|(_, s)| s.exhausted()),
                obstacle: None,
            }
        };
        sources.map(source).collect()
    }
}
