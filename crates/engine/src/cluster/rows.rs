//! Result rows as letters: Arrow's IPC stream format, a stream per batch.

use arrow::array::RecordBatch;
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::StreamWriter;

use crate::error::{Error, Result};

/// A batch as bytes.
pub(crate) fn encode_rows(rows: &RecordBatch) -> Result<Vec<u8>> {
    let mut writer = StreamWriter::try_new(Vec::new(), &rows.schema())?;
    writer.write(rows)?;
    Ok(writer.into_inner()?)
}

/// The batch that a peer encoded.
pub(crate) fn decode_rows(bytes: &[u8]) -> Result<RecordBatch> {
    let malformed = || Error::Internal("a peer's result rows end too early".into());
    StreamReader::try_new(bytes, None)?.next().ok_or_else(malformed)?.map_err(Error::from)
}
