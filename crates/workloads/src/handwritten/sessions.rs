//! Sessions: one table from keys to the session that is open. A record that comes more than a gap
//! after the last of its key ends that session and begins another; those of which no record comes
//! any more are looked for once in a gap.

use arrow_array::RecordBatch;

use super::columns::Source;
use super::kinds::Kind;
use crate::error::{Error, Result};
use crate::spec::Spec;
use crate::verify::{Bounds, Verifier};

/// Slots at the start, a power of two.
const SLOTS_MIN: usize = 1024;

/// The session of a key that is open.
#[derive(Clone, Copy)]
struct Open<S> {
    value: S,
    first: i64,
    last: i64,
}

impl<S> Open<S> {
    fn bounds(&self, gap_ms: i64) -> Bounds {
        Bounds { start: self.first, end: self.last + gap_ms }
    }
}

struct Sessions<'v, K: Kind> {
    gap_ms: i64,
    /// Linear probing, at most half full.
    slots: Vec<Option<Open<K::Slot>>>,
    live: usize,
    verifier: &'v mut Verifier,
}

/// Runs sessions over the batches of a split, whose records are in the order of their times.
pub(super) fn run<S: Source>(spec: &Spec, batches: &[RecordBatch]) -> Result<Verifier> {
    if spec.watermark_delay_ms() > 0 {
        return Err(Error::Batch("the loop for sessions takes records in order".into()));
    }
    let mut verifier = Verifier::new(spec);
    let (gap_ms, live) = (spec.window_ms as i64, 0);
    let slots = vec![None; SLOTS_MIN];
    let mut sessions = Sessions::<'_, S::Kind> { gap_ms, slots, live, verifier: &mut verifier };
    let mut scratch = S::Scratch::default();
    let mut swept = i64::MIN;
    for batch in batches {
        let source = S::new(batch)?;
        for row in 0..batch.num_rows() {
            let ts = source.ts()[row];
            if ts > swept.saturating_add(gap_ms) {
                sessions.sweep(ts);
                swept = ts;
            }
            let (keys, inputs) = source.select(row, row + 1, &mut scratch);
            if let (Some(key), Some(input)) = (keys.first(), inputs.first()) {
                sessions.update(ts, *key, *input);
            }
        }
    }
    sessions.sweep(i64::MAX);
    Ok(verifier)
}

impl<K: Kind> Sessions<'_, K> {
    #[inline]
    fn update(&mut self, ts: i64, key: K::Key, input: K::Input) {
        let mask = self.slots.len() - 1;
        let mut at = self.home(key);
        loop {
            match &mut self.slots[at] {
                Some(open) if K::same(&open.value, key) => {
                    if ts - open.last > self.gap_ms {
                        K::emit_one(&open.value, open.bounds(self.gap_ms), self.verifier);
                        *open = Open { value: K::first(key, input), first: ts, last: ts };
                    } else {
                        K::update(&mut open.value, input);
                        open.last = ts;
                    }
                    return;
                }
                Some(_) => at = (at + 1) & mask,
                slot @ None => {
                    *slot = Some(Open { value: K::first(key, input), first: ts, last: ts });
                    self.live += 1;
                    break;
                }
            }
        }
        if self.live * 2 > self.slots.len() {
            let slots = std::mem::take(&mut self.slots);
            self.slots = vec![None; slots.len() * 2];
            slots.into_iter().flatten().for_each(|open| self.insert(open));
        }
    }

    /// The slot where the search for a key begins.
    #[inline]
    fn home(&self, key: K::Key) -> usize {
        ((u64::from(K::hash(key)) * self.slots.len() as u64) >> 32) as usize
    }

    fn insert(&mut self, open: Open<K::Slot>) {
        let mask = self.slots.len() - 1;
        let mut at = self.home(K::key(&open.value));
        while self.slots[at].is_some() {
            at = (at + 1) & mask;
        }
        self.slots[at] = Some(open);
    }

    /// Emits the sessions that no record at `ts` or later can reach, and forgets their keys.
    fn sweep(&mut self, ts: i64) {
        let slots = std::mem::take(&mut self.slots);
        self.slots = vec![None; slots.len()];
        self.live = 0;
        for open in slots.into_iter().flatten() {
            if ts.saturating_sub(open.last) > self.gap_ms {
                K::emit_one(&open.value, open.bounds(self.gap_ms), self.verifier);
            } else {
                self.live += 1;
                self.insert(open);
            }
        }
    }
}
