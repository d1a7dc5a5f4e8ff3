//! What cuts have saved, as a store keeps it: a cut refers to what an earlier one has.

use std::collections::{BTreeMap, BTreeSet};

use arrow::array::{AsArray, BooleanArray};
use arrow::compute::filter_record_batch;
use arrow::datatypes::Int64Type;
use millstream_contract::Result;
use millstream_operators::operator::saved::{SLICE, SavePoint, SavedBatch, SetAside};
use millstream_operators::windowing::SliceId;

/// A batch of a cut.
#[derive(Debug, Clone)]
pub(crate) struct CutBatch {
    /// The numbers of the stage and the worker that have saved it.
    pub(crate) owner: (usize, usize),
    pub(crate) batch: SavedBatch,
    /// The slices that count; `None`: all.
    pub(crate) counting: Option<Vec<i64>>,
}

impl CutBatch {
    /// The slice of each row.
    fn slices(&self) -> &[i64] {
        let slices = self.batch.rows.column_by_name(SLICE).expect("names of slices");
        slices.as_primitive::<Int64Type>().values()
    }

    fn counts(&self, slice: i64) -> bool {
        self.counting.as_ref().is_none_or(|of| of.contains(&slice))
    }

    /// The rows that count.
    pub(crate) fn whole(&self) -> SavedBatch {
        let counts: BooleanArray =
            self.slices().iter().map(|slice| Some(self.counts(*slice))).collect();
        let rows = filter_record_batch(&self.batch.rows, &counts).expect("some rows");
        SavedBatch { part: self.batch.part, rows }
    }
}

/// By cut: its batches.
#[derive(Debug, Default)]
pub(crate) struct Cuts(pub(crate) BTreeMap<u64, Vec<CutBatch>>);

impl Cuts {
    /// Saves what a worker has set aside: all its batches at this cut, and how many slices in them
    /// an earlier cut has.
    pub(crate) fn save(
        &self,
        owner: (usize, usize),
        aside: &mut dyn SetAside,
        mut at: SavePoint,
    ) -> Result<(Vec<CutBatch>, Vec<SliceId>)> {
        let unchanged = aside.unchanged();
        let left_out: BTreeSet<_> = unchanged.slices.iter().copied().collect();
        assert_eq!(left_out.len(), unchanged.slices.len(), "a slice left out twice");
        let (mut all, mut found) = (Vec::new(), BTreeSet::new());
        let before = self.0.get(&unchanged.durable).into_iter().flatten();
        for of in before.filter(|of| of.owner == owner) {
            let part = of.batch.part;
            let name = |slice: i64| (part, SliceId::from_word(slice as u64));
            let names: BTreeSet<i64> = of.slices().iter().copied().collect();
            let counts = |slice: &i64| of.counts(*slice) && left_out.contains(&name(*slice));
            let counting: Vec<i64> = names.into_iter().filter(counts).collect();
            found.extend(counting.iter().map(|slice| name(*slice)));
            if !counting.is_empty() {
                all.push(CutBatch { counting: Some(counting), ..of.clone() });
            }
        }
        assert_eq!(found, left_out, "slices of cut {}", unchanged.durable);
        while let Some(batch) = aside.save(&mut at)? {
            let own = CutBatch { owner, batch, counting: None };
            let is_left_out = |slice: &i64| {
                left_out.contains(&(own.batch.part, SliceId::from_word(*slice as u64)))
            };
            assert!(!own.slices().iter().any(is_left_out), "a slice both saved and left out");
            all.push(own);
        }
        assert!(aside.save(&mut at)?.is_none());
        Ok((all, left_out.into_iter().map(|(_, slice)| slice).collect()))
    }
}
