//! Short batches of a producer are merged into one chunk. The job's work for a chunk hardly depends
//! on the chunk's length.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use arrow::datatypes::Schema;
use millstream_contract::Result;
use millstream_contract::table::{Chunk, Decoded, Places};

use crate::sent::Sent;

/// Adjacent batches of a producer. Only the last may have a watermark.
pub(crate) struct Merged(pub(crate) Vec<Sent>);

impl Chunk for Merged {
    fn bytes(&self) -> usize {
        self.0.iter().map(Chunk::bytes).sum()
    }

    fn decode(self: Box<Self>) -> Result<RecordBatch> {
        Ok(self.decode_reporting()?.batch)
    }

    fn decode_reporting(self: Box<Self>) -> Result<Decoded> {
        let parts = self.0.into_iter().map(|sent| Box::new(sent).decode_reporting());
        let parts = parts.collect::<Result<Vec<Decoded>>>()?;
        let schema =
            parts.first().map_or_else(|| Arc::new(Schema::empty()), |part| part.batch.schema());
        let batch = concat_batches(&schema, parts.iter().map(|part| &part.batch))?;
        let mut all = Decoded::whole(batch, None);
        let mut places = Vec::with_capacity(parts.len());
        for part in parts {
            all.left_out += part.left_out;
            all.first_left_out = all.first_left_out.or(part.first_left_out);
            all.notices.extend(part.notices);
            all.sent_watermark_us = part.sent_watermark_us;
            places.push((part.batch.num_rows(), part.places));
        }
        all.places = Some(Box::new(MergedPlaces(places)));
        Ok(all)
    }
}

/// The places of each part, and its rows.
#[derive(Debug)]
struct MergedPlaces(Vec<(usize, Option<Box<dyn Places>>)>);

impl MergedPlaces {
    /// The part of a row, and the row's number there.
    fn part(&self, mut row: usize) -> Option<(&dyn Places, usize)> {
        for (rows, places) in &self.0 {
            match row.checked_sub(*rows) {
                Some(rest) => row = rest,
                None => return places.as_deref().map(|places| (places, row)),
            }
        }
        None
    }
}

impl Places for MergedPlaces {
    fn place(&self, row: usize) -> String {
        self.part(row).map(|(places, row)| places.place(row)).unwrap_or_default()
    }

    fn offset(&self, row: usize) -> Option<u64> {
        self.part(row).and_then(|(places, row)| places.offset(row))
    }

    fn bytes(&self) -> usize {
        self.0.iter().filter_map(|(_, places)| Some(places.as_ref()?.bytes())).sum()
    }
}
