//! The stream of events, in batches.

use std::ops::Range;

use arrow_array::RecordBatch;

use crate::columns::Columns;
use crate::config::Config;
use crate::deal::Deal;
use crate::times::Times;

/// A stream of events.
#[derive(Debug, Clone)]
pub struct Events {
    config: Config,
    times: Times,
}

impl Events {
    /// The stream of a configuration.
    pub fn new(config: Config) -> Events {
        let times = Times::new(&config);
        Events { config, times }
    }

    /// The configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// When its events happen.
    pub fn times(&self) -> &Times {
        &self.times
    }

    /// The events of these ranges of numbers, one range after the other, with the columns of
    /// `projection`: places in [`schema`], each at most once.
    ///
    /// # Panics
    ///
    /// If a place is beyond the schema, or if the texts of the batch take more than 2 GB.
    pub fn batch(
        &self,
        ranges: impl IntoIterator<Item = Range<u64>>,
        projection: &[usize],
    ) -> RecordBatch {
        let ranges: Vec<Range<u64>> = ranges.into_iter().collect();
        let events =
            ranges.iter().map(|range| range.end.saturating_sub(range.start) as usize).sum();
        let mut columns = Columns::new(&self.config, &self.times, projection, events);
        for number in ranges.into_iter().flatten() {
            columns.push(number);
        }
        columns.finish(projection)
    }

    /// All events, dealt to `splits` splits, in batches of so many rows. Of a stream without an end
    /// there are none.
    pub fn generate(&self, splits: usize, batch_rows: usize) -> Vec<Vec<RecordBatch>> {
        let (splits, rows) = (splits.max(1) as u64, batch_rows.max(1) as u64);
        let split = |split| {
            let deal = Deal::new(&self.config, split, splits);
            let events = self.config.events.map_or(0, |_| deal.events());
            let batch =
                |start| self.batch(deal.ranges(start..events.min(start + rows)), &[0, 1, 2, 3]);
            (0..events).step_by(rows as usize).map(batch).collect()
        };
        (0..splits).map(split).collect()
    }

    /// About how many bytes an event takes with these columns, on average over all events.
    pub fn width_bytes(&self, projection: &[usize]) -> usize {
        let Config { persons, auctions, bids, .. } = self.config;
        let group = self.config.group();
        let width = |place: &usize| match place {
            0 => 4,
            1 => persons * self.config.person_bytes / group,
            2 => auctions * self.config.auction_bytes / group,
            _ => bids * self.config.bid_bytes / group,
        };
        projection.iter().map(width).sum::<u64>().max(1) as usize
    }
}
