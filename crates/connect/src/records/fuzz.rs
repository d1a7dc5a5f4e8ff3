//! Reading a whole file from memory: for fuzzing and tests.

use std::io::Cursor;
use std::sync::Arc;
use std::task::Waker;

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use arrow::datatypes::SchemaRef;
use millstream_contract::Result;
use millstream_contract::table::{LeftOut, Position, Sharing, Split, SplitPoll};

use super::{Reading, RecordFormat, RecordSplit};
use crate::input::Input;
use crate::options::OnError;

/// Result of reading a file.
#[derive(Debug, PartialEq)]
pub(crate) struct Outcome {
    pub(crate) rows: RecordBatch,
    /// Malformed records, and what is said of the first.
    pub(crate) left_out: u64,
    pub(crate) first_left_out: Option<LeftOut>,
}

/// A file in memory, read in chunks of about `chunk_bytes`.
pub(crate) fn read_whole(
    format: Arc<dyn RecordFormat>,
    name: &str,
    content: &[u8],
    schema: &SchemaRef,
    projection: &[usize],
    chunk_bytes: usize,
) -> Result<Outcome> {
    let reading = Reading {
        path: name.into(),
        schema,
        projection,
        batch_rows: 1 << 20,
        from: Position::default(),
        length: Some(content.len() as u64),
        sharing: Sharing::ByChunk,
        one_of_many: false,
        pruning: &Default::default(),
        dictionaries: &[],
        offsets: false,
        chunk_bytes: Some(chunk_bytes),
    };
    let keeps = format.on_error() == OnError::Keep;
    let input = Input::Memory(Cursor::new(content.into()));
    let mut split = RecordSplit::open(format, input, &reading)?;
    let mut batches = Vec::new();
    let (mut left_out, mut first_left_out, mut rows) = (0, None, 0);
    loop {
        match split.poll_next(0, Waker::noop())? {
            SplitPoll::Chunk(chunk) => {
                let decoded = chunk.decode_reporting()?;
                let first = decoded.first_left_out;
                // In the file, not in the chunk: that must not depend on how it is cut.
                let first = first.map(|first| LeftOut { before: rows + first.before, ..first });
                first_left_out = first_left_out.or(first);
                rows += decoded.batch.num_rows();
                batches.push(decoded.batch);
                let kept = decoded.malformed.map_or(0, |malformed| malformed.num_rows());
                if keeps {
                    assert_eq!(kept as u64, decoded.left_out, "malformed records that are kept");
                }
                left_out += decoded.left_out;
            }
            SplitPoll::Pending { .. } => {}
            SplitPoll::Ended => break,
        }
    }
    let projected = Arc::new(schema.project(projection).expect("a projection of the schema"));
    let rows = if projected.fields().is_empty() {
        let rows = batches.iter().map(RecordBatch::num_rows).sum();
        let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(rows));
        let empty = RecordBatch::try_new_with_options(projected, vec![], &options);
        empty.expect("no columns fit no fields")
    } else {
        concat_batches(&projected, &batches).expect("batches of one schema")
    };
    Ok(Outcome { rows, left_out, first_left_out })
}
