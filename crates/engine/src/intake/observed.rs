//! What the observer sees of splits.

use super::Intake;
use crate::observe::{Source, Split, time};

impl Intake {
    /// The splits as they are now.
    pub(crate) fn observed_splits(&self) -> Vec<Split> {
        let now = self.env.now_us();
        let state = self.lock();
        let splits = self.splits.iter().zip(&state.splits);
        splits
            .map(|(split, s)| Split {
                name: split.name.clone(),
                source: split.source,
                watermark_us: time(s.watermark),
                holds_us: time(s.low()),
                records: s.records,
                bytes: s.bytes,
                progress: s.progress,
                silent_us: (now - s.last_data_us).max(0) as u64,
                waits: s.pending && s.outstanding() == 0,
                ready: s.ready.len(),
                idle: s.idle,
                ended: s.exhausted() && !s.elsewhere,
                elsewhere: s.elsewhere,
            })
            .collect()
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
                bounded: source.bounded,
                live: source.live,
                watermark_us: time(s.low),
                idle_timeout_us: source.idle_timeout_us,
                ended: s.closed || splits.all(|(_, s)| s.exhausted()),
            }
        };
        sources.map(source).collect()
    }
}
