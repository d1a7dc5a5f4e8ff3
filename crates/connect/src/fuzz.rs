//! Check shared by the fuzz targets of Parquet and Arrow IPC: a readable file gives the same chunks
//! from any position, with any columns left out, and with pruning by statistics.

use std::task::Waker;
use std::thread;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::compute::{cast, concat_batches};
use arrow::datatypes::{DataType, SchemaRef};
use millstream_contract::Result;
use millstream_contract::pruning::Pruning;
use millstream_contract::table::{Position, Sharing, Split, SplitPoll};

use crate::records::Reading;

/// Chunks that are read. A damaged file may claim to have any number of rows.
const CHUNKS_MAX: usize = 64;

/// Chunks, and the position after each.
pub(crate) struct ReadChunks {
    pub(crate) chunks: Vec<RecordBatch>,
    positions: Vec<Position>,
    /// Whether these are all.
    ended: bool,
}

/// Opens what is fuzzed.
pub(crate) trait OpenSplit: Fn(&Reading<'_>) -> Result<Box<dyn Split>> {}

impl<F: Fn(&Reading<'_>) -> Result<Box<dyn Split>>> OpenSplit for F {}

/// Reads from a position.
pub(crate) fn read(
    open: &impl OpenSplit,
    schema: &SchemaRef,
    projection: &[usize],
    from: Position,
    pruning: &Pruning,
) -> Result<ReadChunks> {
    read_as(open, schema, projection, from, pruning, &[])
}

/// As [`read`]; columns at some places of the projection may come as dictionaries.
fn read_as(
    open: &impl OpenSplit,
    schema: &SchemaRef,
    projection: &[usize],
    from: Position,
    pruning: &Pruning,
    dictionaries: &[usize],
) -> Result<ReadChunks> {
    let mut split = open(&Reading {
        path: "fuzz".into(),
        schema,
        projection,
        batch_rows: 1 << 20,
        from,
        length: None,
        sharing: Sharing::Whole,
        offsets: false,
        one_of_many: false,
        pruning,
        dictionaries,
        chunk_bytes: None,
    })?;
    let mut read = ReadChunks { chunks: Vec::new(), positions: Vec::new(), ended: false };
    while read.chunks.len() < CHUNKS_MAX {
        match split.poll_next(0, Waker::noop())? {
            SplitPoll::Chunk(chunk) => {
                read.chunks.push(chunk.decode()?);
                read.positions.push(split.position());
            }
            SplitPoll::Pending { .. } => thread::yield_now(),
            SplitPoll::Ended => {
                read.ended = true;
                break;
            }
        }
    }
    Ok(read)
}

/// Reads everything; and if that can be read, parts of it in several ways. `choice` says which.
///
/// # Panics
///
/// If partial reading gives other records.
pub(crate) fn check(
    open: &impl OpenSplit,
    schema: &SchemaRef,
    choice: usize,
    pruning: &Pruning,
) -> Option<ReadChunks> {
    let all: Vec<usize> = (0..schema.fields().len()).collect();
    let none = Pruning::default();
    let whole = read(open, schema, &all, Position::default(), &none);
    let few = all.iter().rev().copied().filter(|at| (choice >> (at % 5)) & 1 == 0);
    let few: Vec<usize> = few.collect();
    let narrow = read(open, schema, &few, Position::default(), &none);
    let pruned = read(open, schema, &all, Position::default(), pruning);
    let whole = whole.ok()?;
    let narrow = narrow.expect("a part of what can be read").chunks;
    let same: Vec<RecordBatch> =
        whole.chunks.iter().map(|chunk| chunk.project(&few).expect("columns")).collect();
    assert_same_start(&narrow, &same);
    let texts = all.iter().filter(|column| *schema.field(**column).data_type() == DataType::Utf8);
    let texts: Vec<usize> = texts.copied().collect();
    let kept = read_as(open, schema, &all, Position::default(), &none, &texts);
    // A dictionary may have a damaged value that no row has.
    if let Ok(ReadChunks { chunks, .. }) = kept {
        let chunks: Vec<_> = chunks.iter().map(|chunk| unpacked(chunk, schema)).collect();
        assert_same_start(&chunks, &whole.chunks);
    }
    let rows = |read: &ReadChunks| read.chunks.iter().map(RecordBatch::num_rows).sum::<usize>();
    // Statistics may be damaged, and reading without pruning does not look at them.
    if let Some(pruned) = pruned.ok().filter(|pruned| pruned.ended && whole.ended) {
        assert_eq!(rows(&pruned), rows(&whole), "rows depend on statistics");
    }
    if let Some(at) = choice.checked_rem(whole.chunks.len()).filter(|_| whole.ended) {
        let rest = read(open, schema, &all, whole.positions[at].clone(), &none);
        let rest = rest.expect("the rest of what can be read").chunks;
        assert_eq!(rest, whole.chunks[at + 1..], "rows depend on where reading begins");
    }
    Some(whole)
}

/// The same texts without dictionaries.
fn unpacked(chunk: &RecordBatch, schema: &SchemaRef) -> RecordBatch {
    let columns = chunk.columns().iter().zip(schema.fields());
    let columns = columns.map(|(column, field)| cast(column, field.data_type()).expect("texts"));
    let options = RecordBatchOptions::new().with_row_count(Some(chunk.num_rows()));
    RecordBatch::try_new_with_options(schema.clone(), columns.collect(), &options).expect("columns")
}

/// Reading other columns may cut chunks elsewhere: compares only the common start.
fn assert_same_start(left: &[RecordBatch], right: &[RecordBatch]) {
    let (Some(first), false) = (left.first(), right.is_empty()) else { return };
    if first.num_columns() == 0 {
        return;
    }
    let joined = |chunks| concat_batches(first.schema_ref(), chunks).expect("one schema");
    let (left, right) = (joined(left), joined(right));
    let rows = left.num_rows().min(right.num_rows());
    assert_eq!(left.slice(0, rows), right.slice(0, rows), "rows depend on the columns");
}
