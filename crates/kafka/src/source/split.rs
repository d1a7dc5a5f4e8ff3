//! A partition as a split.

use std::sync::Arc;
use std::task::Waker;

use millstream_contract::Result;
use millstream_contract::table::{Extent, Position, Split, SplitPoll};
use uuid::Uuid;

use super::chunk::{KafkaChunk, Plan};
use super::fetch::{CHUNK_BYTES, Fetcher, Ready};

/// Where reading of a partition goes on, as kept in checkpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) offset: i64,
    /// The leader's epoch of the batch before, to see whether the log was cut back.
    pub(super) epoch: i32,
    pub(super) topic_id: Uuid,
    /// Where it ends.
    pub(super) until: i64,
}

impl Mark {
    pub(super) fn of(position: &Position) -> Option<Mark> {
        let [offset, epoch, high, low, until] = position.0[..] else { return None };
        Some(Mark {
            offset: i64::try_from(offset).ok()?,
            epoch: i32::try_from(epoch).ok()? - 1,
            topic_id: Uuid::from_u64_pair(high, low),
            until: i64::try_from(until).ok()?,
        })
    }

    fn position(&self) -> Position {
        let (high, low) = self.topic_id.as_u64_pair();
        let epoch = (i64::from(self.epoch) + 1).max(0) as u64;
        Position(vec![self.offset.max(0) as u64, epoch, high, low, self.until.max(0) as u64])
    }
}

pub(super) struct KafkaSplit {
    pub(super) name: String,
    pub(super) plan: Arc<Plan>,
    pub(super) fetcher: Arc<Fetcher>,
    pub(super) lane: usize,
    pub(super) first: i64,
    pub(super) mark: Mark,
    pub(super) batch_rows: usize,
    /// The brokers, for messages.
    pub(super) servers: Arc<str>,
}

impl Split for KafkaSplit {
    fn name(&self) -> &str {
        &self.name
    }

    fn notice(&mut self) -> Option<String> {
        let keys = || self.plan.key.as_ref().and_then(|key| key.news());
        self.fetcher.news().or_else(|| self.plan.value.news()).or_else(keys)
    }

    fn position(&self) -> Position {
        self.mark.position()
    }

    fn progress(&self) -> Option<Extent> {
        let end = self.fetcher.log(self.lane)?.end.min(self.mark.until);
        let all = end.max(self.mark.offset).saturating_sub(self.first).max(0) as u64;
        let done = self.mark.offset.saturating_sub(self.first).max(0) as u64;
        Some(Extent { done, of: all, bytes: false })
    }

    fn caught_up(&self) -> bool {
        self.fetcher.caught_up(self.lane)
    }

    fn poll_next(&mut self, _now_us: i64, waker: &Waker) -> Result<SplitPoll> {
        loop {
            if self.mark.offset >= self.mark.until {
                return Ok(SplitPoll::Ended);
            }
            // Rows of bounded partitions come in turns, chunk by chunk (P2).
            let (most, fill) = ((CHUNK_BYTES, self.batch_rows), self.mark.until < i64::MAX);
            let taken = self.fetcher.take(self.lane, most, fill, waker);
            match taken.map_err(|fault| fault.error(&self.servers))? {
                Ready::Later => return Ok(SplitPoll::Pending { retry_at_us: None }),
                Ready::Nothing(offset) => {
                    self.mark.offset = self.mark.offset.max(offset);
                    self.mark.epoch = -1;
                }
                Ready::Batches(batches) => {
                    let from = self.mark.offset;
                    if let Some(last) = batches.last() {
                        self.mark.offset = last.head.end().min(self.mark.until);
                        self.mark.epoch = last.head.leader_epoch;
                    }
                    let (plan, until) = (self.plan.clone(), self.mark.until);
                    let chunk = KafkaChunk { plan, batches, from, until };
                    return Ok(SplitPoll::Chunk(Box::new(chunk)));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_positions() {
        let mark =
            Mark { offset: 42, epoch: -1, topic_id: Uuid::from_u128(7 << 64 | 9), until: i64::MAX };
        assert_eq!(Mark::of(&mark.position()), Some(mark));
        let mark = Mark { offset: 0, epoch: 3, topic_id: Uuid::nil(), until: 5 };
        assert_eq!(Mark::of(&mark.position()), Some(mark));
        assert_eq!(Mark::of(&Position(vec![1])), None);
    }
}
