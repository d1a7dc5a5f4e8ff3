//! Skipped records: where the first one is, for the closing report.

use serde::{Deserialize, Serialize};

use crate::stamped::Stamped;

/// A record that did not count.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// Number of its split, of its chunk within the split, and of the row within the chunk.
    position: (usize, u64, usize),
    /// Place of the record, with its fault unless all records of its kind have the same fault.
    pub place: String,
}

/// Keeps the first of two in the order of splits and of their records.
pub fn keep_first(first: &mut Option<Skipped>, other: &Option<Skipped>) {
    let Some(other) = other else { return };
    if first.as_ref().is_none_or(|first| other.position < first.position) {
        *first = Some(other.clone());
    }
}

/// Notes the first malformed record of a batch.
pub fn note_malformed(first: &mut Option<Skipped>, batch: &Stamped) {
    let Some(first_malformed) = &batch.prepared.first_malformed else { return };
    let position = (batch.split, batch.sequence, 0);
    keep_first(first, &Some(Skipped { position, place: first_malformed.to_string() }));
}

/// Notes a row of a batch of the split `name`.
pub fn note_row(first: &mut Option<Skipped>, batch: &Stamped, row: Option<usize>, name: &str) {
    let Some(row) = row else { return };
    let row_of_chunk = batch.first_row + row;
    let position = (batch.split, batch.sequence, row_of_chunk);
    if first.as_ref().is_some_and(|first| first.position <= position) {
        return;
    }
    *first = Some(Skipped { position, place: place_of(batch, row, name) });
}

/// Where a row of a batch stands. Where its source cannot say that, it is counted from 1 in the
/// split `name`.
pub fn place_of(batch: &Stamped, row: usize, name: &str) -> String {
    match &batch.prepared.places {
        Some(places) => places.place(batch.first_row + row),
        None => format!("{name}, record {}", batch.first_record + row as u64 + 1),
    }
}
