//! A bucket of S3 as a store. An object of many megabytes is uploaded in parts, and becomes visible
//! when the upload is complete.

use std::ops::Range;

use millstream_bucket::{Bucket, Error as BucketError, Parts};

use crate::contract::{Object, ObjectWriter, Put, Store};
use crate::error::{Error, Result};
use crate::names;

/// A prefix of a bucket as a store. Uploads of killed programs stay invisible in the bucket until
/// its lifecycle rule removes them.
#[derive(Debug, Clone)]
pub struct S3Store(Bucket);

impl S3Store {
    /// The objects under a URL `s3://bucket/prefix`.
    pub fn open(url: &str) -> Result<S3Store> {
        Bucket::open(url).map(S3Store).map_err(refused)
    }
}

fn refused(error: BucketError) -> Error {
    match error {
        BucketError::Missing { place } => Error::Missing { object: place },
        BucketError::Refused { place, message, help } => {
            Error::Unavailable { object: place, message, help }
        }
    }
}

impl Store for S3Store {
    fn place(&self, name: &str) -> String {
        self.0.place(name)
    }

    fn put_if_absent(&self, name: &str, bytes: &[u8]) -> Result<Put> {
        names::check(name)?;
        let is_new = self.0.put_if_absent(name, bytes.to_vec()).map_err(refused)?;
        Ok(if is_new { Put::Created } else { Put::Exists })
    }

    fn create(&self, name: &str) -> Result<Box<dyn ObjectWriter>> {
        names::check(name)?;
        Ok(Box::new(Writer(Parts::new(self.0.clone(), name))))
    }

    /// An object that can be read is durable.
    fn settle(&self, _name: &str) -> Result<()> {
        Ok(())
    }

    fn get(&self, name: &str, range: Option<Range<u64>>) -> Result<Vec<u8>> {
        names::check(name)?;
        let bytes = self.0.get(name, range.clone()).map_err(refused)?;
        match range {
            Some(range) if range.end - range.start != bytes.len() as u64 => Err(Error::Damaged {
                object: self.place(name),
                message: format!("it ends before byte {}", range.end),
                before: None,
            }),
            _ => Ok(bytes),
        }
    }

    fn list(&self, prefix: &str) -> Result<Vec<Object>> {
        let listed = self.0.list(prefix).map_err(refused)?;
        let object =
            |found: millstream_bucket::Listed| Object { name: found.name, bytes: found.bytes };
        Ok(listed.into_iter().map(object).collect())
    }

    fn delete(&self, name: &str) -> Result<()> {
        names::check(name)?;
        self.0.delete(name).map_err(refused)
    }

    fn sweep(&self) -> Result<u64> {
        Ok(0)
    }
}

#[derive(Debug)]
struct Writer(Parts);

impl ObjectWriter for Writer {
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.0.append(bytes).map_err(refused)
    }

    fn finish(self: Box<Self>) -> Result<()> {
        self.0.finish().map_err(refused)
    }
}
