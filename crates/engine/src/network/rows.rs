//! Result rows as messages: Arrow's IPC stream format, one stream per batch.

use std::panic::catch_unwind;

use arrow::array::RecordBatch;
use arrow::buffer::Buffer;
use arrow::ipc::reader::StreamDecoder;
use arrow::ipc::writer::StreamWriter;

use crate::error::{Error, Result};

/// A batch as bytes.
pub(crate) fn encode_rows(rows: &RecordBatch) -> Result<Vec<u8>> {
    let mut writer = StreamWriter::try_new(Vec::new(), &rows.schema())?;
    writer.write(rows)?;
    Ok(writer.into_inner()?)
}

/// The batch that a peer encoded. The decoder takes no memory on a stream's word, but trusts the
/// places that it tells of, and panics where there are no such.
pub(crate) fn decode_rows(bytes: &[u8]) -> Result<RecordBatch> {
    let read = || StreamDecoder::new().decode(&mut Buffer::from(bytes));
    match catch_unwind(read) {
        Ok(Ok(Some(rows))) => Ok(rows),
        Ok(Ok(None)) => Err(Error::Internal("result rows that end too early".into())),
        Ok(Err(error)) => Err(Error::Internal(format!("result rows that cannot be read: {error}"))),
        Err(_) => Err(Error::Internal("result rows that cannot be read".into())),
    }
}
