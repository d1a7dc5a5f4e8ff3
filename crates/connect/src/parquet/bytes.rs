//! A file as the Parquet reader wants it: read at any place, by several workers at once.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use ::parquet::errors::{ParquetError, Result};
use ::parquet::file::reader::{ChunkReader, Length};
use bytes::Bytes;

/// A file, up to the length that it had when the job began.
#[derive(Debug, Clone)]
pub(super) struct FileBytes {
    file: Arc<File>,
    length: u64,
}

impl FileBytes {
    pub(super) fn new(file: File, length: u64) -> FileBytes {
        FileBytes { file: Arc::new(file), length }
    }
}

impl Length for FileBytes {
    fn len(&self) -> u64 {
        self.length
    }
}

impl ChunkReader for FileBytes {
    type T = io::BufReader<From>;

    fn get_read(&self, start: u64) -> Result<io::BufReader<From>> {
        Ok(io::BufReader::new(From { bytes: self.clone(), at: start }))
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        // Asked of the file first: a damaged one may ask for anything.
        let end = start.checked_add(length as u64).filter(|end| *end <= self.length);
        if end.is_none() {
            let what = format!("{length} bytes at {start} of a file of {} bytes", self.length);
            return Err(ParquetError::EOF(what));
        }
        let mut bytes = vec![0; length];
        self.file.read_exact_at(&mut bytes, start)?;
        Ok(bytes.into())
    }
}

/// The bytes from an offset on.
pub(super) struct From {
    bytes: FileBytes,
    at: u64,
}

impl Read for From {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let left = self.bytes.length.saturating_sub(self.at);
        let wanted = left.min(out.len() as u64) as usize;
        let got = self.bytes.file.read_at(&mut out[..wanted], self.at)?;
        self.at += got as u64;
        Ok(got)
    }
}
