//! Rows of a batch on their way to an output.

use std::collections::BTreeMap;

use arrow::array::RecordBatch;
use arrow::compute::{concat_batches, interleave_record_batch};

use crate::error::{Error, Result};

/// Rows of a batch for an output.
pub(super) struct Passed {
    pub(super) output: usize,
    pub(super) input: usize,
    pub(super) rows: RecordBatch,
    /// Positions of the rows in the batch, ascending, where the output has other rows of the batch;
    /// `None`: the rows are the whole batch.
    pub(super) places: Option<Vec<u32>>,
    /// Reason why no more rows follow: the failed record.
    pub(super) then: Option<(usize, Error)>,
}

/// Rows of several inputs of an output in the order of the records that they are of, and of one
/// record in the order of the inputs: where batches end makes no difference.
pub(super) fn by_record(mut parts: Vec<Passed>) -> Result<(RecordBatch, Option<Error>)> {
    if parts.len() == 1
        && let Some(Passed { rows, then, .. }) = parts.pop()
    {
        return Ok((rows, then.map(|(_, error)| error)));
    }
    let Some(schema) = parts.first().map(|part| part.rows.schema()) else {
        return Err(Error::Internal("a batch that has no rows".into()));
    };
    let fails = |(input, part): (usize, &Passed)| Some((part.then.as_ref()?.0, input));
    let end = parts.iter().enumerate().filter_map(fails).min();
    let mut order: Vec<(usize, usize, usize)> = Vec::new();
    for (input, part) in parts.iter().enumerate() {
        let place = |row: usize| part.places.as_ref().map_or(row, |places| places[row] as usize);
        let rows = (0..part.rows.num_rows()).map(|row| (place(row), input, row));
        order.extend(rows.filter(|(place, input, _)| end.is_none_or(|end| (*place, *input) < end)));
    }
    order.sort_unstable();
    let then = end.and_then(|(_, input)| parts[input].then.take()).map(|(_, error)| error);
    if order.is_empty() {
        return Ok((RecordBatch::new_empty(schema), then));
    }
    let order: Vec<(usize, usize)> =
        order.into_iter().map(|(_, input, row)| (input, row)).collect();
    let rows: Vec<&RecordBatch> = parts.iter().map(|part| &part.rows).collect();
    Ok((interleave_record_batch(&rows, &order)?, then))
}

/// Rows of several pieces of the same records, as one for each input of an output.
pub(super) fn joined(pieces: Vec<Passed>) -> Result<Vec<Passed>> {
    let mut inputs: BTreeMap<(usize, usize), Vec<Passed>> = BTreeMap::new();
    for piece in pieces {
        inputs.entry((piece.output, piece.input)).or_default().push(piece);
    }
    let mut whole = Vec::new();
    for ((output, input), mut pieces) in inputs {
        // The first failure ends the rows that count.
        let end = pieces.iter().position(|piece| piece.then.is_some());
        pieces.truncate(end.map_or(pieces.len(), |end| end + 1));
        if pieces.len() == 1 {
            whole.append(&mut pieces);
            continue;
        }
        let batches = pieces.iter().map(|piece| &piece.rows);
        let Some(schema) = batches.clone().next().map(RecordBatch::schema) else { continue };
        let rows = concat_batches(&schema, batches)?;
        let of_each = |piece: &mut Passed| piece.places.take();
        let places: Option<Vec<Vec<u32>>> = pieces.iter_mut().map(of_each).collect();
        let then = pieces.iter_mut().find_map(|piece| piece.then.take());
        whole.push(Passed { output, input, rows, places: places.map(|p| p.concat()), then });
    }
    Ok(whole)
}
