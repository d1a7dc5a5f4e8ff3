//! A bucket of S3, for callers that wait: objects, and uploads in parts.
//!
//! Credentials, region and endpoint come from the environment, by the names that AWS's tools use
//! (`AWS_ACCESS_KEY_ID`, `AWS_REGION`, `AWS_ENDPOINT_URL`, …). Requests that fail are repeated.
//!
//! "If absent" is a condition of the request (`If-None-Match: *`), which S3 and most services that
//! speak its protocol have.

use std::fmt;
use std::future::Future;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::TryStreamExt;
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::{
    BackoffConfig, ClientOptions, GetOptions, GetRange, ObjectStore, ObjectStoreExt, PutMode,
    PutOptions, PutPayload, RetryConfig,
};
use serde::{Deserialize, Serialize};
use tokio::runtime::{Builder, Runtime};

/// How URLs of buckets begin.
const SCHEME: &str = "s3://";
/// A request without an answer is given up after this time.
const ANSWER: Duration = Duration::from_secs(30);
/// A request that fails is repeated for so long.
const REPEATED: Duration = Duration::from_secs(60);

const NO_BUCKET: &str = "make the bucket, or name another one";

/// Bytes of a part. There may be 10,000 parts.
const PART: usize = 8 << 20;

/// Why the service does not do what was asked. Every message names the object.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no such object.
    #[error("{place}: there is no such object")]
    Missing {
        /// The object's URL.
        place: String,
    },
    /// The service does not answer, or refuses.
    #[error("{place}: {message}\n  help: {help}")]
    Refused {
        /// The object's URL.
        place: String,
        /// Message of the service.
        message: String,
        /// Advice.
        help: String,
    },
}

/// The result of a call.
pub type Result<T> = std::result::Result<T, Error>;

/// An object in a list.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Listed {
    /// Its name behind the bucket's prefix.
    pub name: String,
    /// Its length.
    pub bytes: u64,
}

/// A prefix in a bucket. Clones share their connections.
#[derive(Debug, Clone)]
pub struct Bucket(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    store: AmazonS3,
    runtime: Runtime,
    /// Without a slash at its end.
    url: String,
    /// Empty, or with a slash at its end.
    prefix: String,
}

/// An upload in parts, which is complete or never seen. Small enough for a manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Upload {
    /// The service's name of the upload.
    pub id: String,
    /// The service's names of the parts, in their order.
    pub parts: Vec<String>,
}

impl Bucket {
    /// The place of a URL `s3://bucket/prefix`.
    pub fn open(url: &str) -> Result<Bucket> {
        let url = url.trim_end_matches('/');
        let rest = url.strip_prefix(SCHEME).unwrap_or_default();
        let (name, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let refused = |message: String| Error::Refused {
            place: url.to_string(),
            message,
            help: "write s3://bucket/prefix, and set AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and \
                   AWS_REGION; AWS_ENDPOINT_URL for another service than AWS"
                .into(),
        };
        if name.is_empty() || Path::parse(prefix).is_err() {
            return Err(refused("it is no URL of a bucket".into()));
        }
        let is_local = std::env::var("AWS_ENDPOINT_URL").is_ok_and(|url| url.starts_with("http:"));
        let repeated = RetryConfig {
            backoff: BackoffConfig::default(),
            max_retries: 10,
            retry_timeout: REPEATED,
        };
        let store = AmazonS3Builder::from_env()
            .with_bucket_name(name)
            .with_retry(repeated)
            .with_client_options(
                ClientOptions::new().with_timeout(ANSWER).with_allow_http(is_local),
            )
            .build()
            .map_err(|error| refused(error.to_string()))?;
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| refused(error.to_string()))?;
        let prefix = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
        Ok(Bucket(Arc::new(Inner { store, runtime, url: url.to_string(), prefix })))
    }

    /// The URL of an object.
    pub fn place(&self, name: &str) -> String {
        format!("{}/{name}", self.0.url)
    }

    /// Writes an object, in place of one of this name.
    pub fn put(&self, name: &str, bytes: Vec<u8>) -> Result<()> {
        let payload = PutPayload::from(bytes);
        self.call(name, |path| async move { self.0.store.put(&path, payload).await }).map(drop)
    }

    /// Writes an object, unless one of this name exists. False if one does, which may be that of an
    /// earlier try of this call.
    pub fn put_if_absent(&self, name: &str, bytes: Vec<u8>) -> Result<bool> {
        let payload = PutPayload::from(bytes);
        let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
        let path = self.path(name)?;
        match self.wait(self.0.store.put_opts(&path, payload, options)) {
            Ok(_) => Ok(true),
            Err(object_store::Error::AlreadyExists { .. }) => Ok(false),
            Err(error) => Err(self.refused(name, error)),
        }
    }

    /// The bytes of an object, or those of a range, as far as the object has them.
    pub fn get(&self, name: &str, range: Option<Range<u64>>) -> Result<Vec<u8>> {
        if range.as_ref().is_some_and(Range::is_empty) {
            return Ok(Vec::new());
        }
        let options = GetOptions { range: range.map(GetRange::Bounded), ..GetOptions::default() };
        let path = self.path(name)?;
        let answer =
            self.wait(async { self.0.store.get_opts(&path, options).await?.bytes().await });
        answer.map(Vec::from).map_err(|error| match error {
            object_store::Error::NotFound { .. } => Error::Missing { place: self.place(name) },
            error => self.refused(name, error),
        })
    }

    /// All objects whose names begin with `start`, by name.
    pub fn list(&self, start: &str) -> Result<Vec<Listed>> {
        // The service lists what stands under a slash.
        let under = start.rfind('/').map_or("", |slash| &start[..slash]);
        let folder = format!("{}{under}", self.0.prefix);
        let path = self.path(under)?;
        let under = (!folder.is_empty()).then_some(&path);
        let found: Vec<_> = self
            .wait(self.0.store.list(under).try_collect())
            .map_err(|error| self.refused(start, error))?;
        let named = found.into_iter().filter_map(|meta| {
            let name = meta.location.as_ref().strip_prefix(&self.0.prefix)?;
            name.starts_with(start).then(|| Listed { name: name.to_string(), bytes: meta.size })
        });
        let mut named: Vec<Listed> = named.collect();
        named.sort();
        Ok(named)
    }

    /// Whether an object is there.
    pub fn has(&self, name: &str) -> Result<bool> {
        let path = self.path(name)?;
        match self.wait(self.0.store.head(&path)) {
            Ok(_) => Ok(true),
            Err(object_store::Error::NotFound { .. }) => Ok(false),
            Err(error) => Err(self.refused(name, error)),
        }
    }

    /// Deletes an object. No error if there is none.
    pub fn delete(&self, name: &str) -> Result<()> {
        let path = self.path(name)?;
        match self.wait(self.0.store.delete(&path)) {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(self.refused(name, error)),
        }
    }

    /// Begins an upload in parts.
    pub fn begin(&self, name: &str) -> Result<Upload> {
        let begun =
            self.call(name, |path| async move { self.0.store.create_multipart(&path).await });
        Ok(Upload { id: begun?, parts: Vec::new() })
    }

    /// Uploads the next part, of 5 MiB at least unless it is the last.
    pub fn append(&self, name: &str, upload: &mut Upload, bytes: Vec<u8>) -> Result<()> {
        let (id, number) = (upload.id.clone(), upload.parts.len());
        let payload = PutPayload::from(Bytes::from(bytes));
        let part = self.call(name, |path| async move {
            self.0.store.put_part(&path, &id, number, payload).await
        });
        upload.parts.push(part?.content_id);
        Ok(())
    }

    /// Shows the object of an upload. A second call changes nothing, also in another process.
    ///
    /// # Errors
    /// [`Error::Missing`]: neither the upload nor the object is there.
    pub fn complete(&self, name: &str, upload: &Upload) -> Result<()> {
        let path = self.path(name)?;
        let part = |id: &String| PartId { content_id: id.clone() };
        let parts = upload.parts.iter().map(part).collect();
        match self.wait(self.0.store.complete_multipart(&path, &upload.id, parts)) {
            Ok(_) => Ok(()),
            // An upload that is complete is no longer known.
            Err(object_store::Error::NotFound { .. }) => match self.has(name)? {
                true => Ok(()),
                false => Err(Error::Missing { place: self.place(name) }),
            },
            Err(error) => Err(self.refused(name, error)),
        }
    }

    /// Gives an upload up.
    pub fn abandon(&self, name: &str, upload: &Upload) -> Result<()> {
        let path = self.path(name)?;
        match self.wait(self.0.store.abort_multipart(&path, &upload.id)) {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(self.refused(name, error)),
        }
    }

    fn path(&self, name: &str) -> Result<Path> {
        let fault = |error: object_store::path::Error| Error::Refused {
            place: self.place(name),
            message: error.to_string(),
            help: "use letters, digits, '-', '_', '.', '=' and '/'".into(),
        };
        Path::parse(format!("{}{name}", self.0.prefix)).map_err(fault)
    }

    /// A call whose errors are all the service's.
    fn call<T, F>(&self, name: &str, call: impl FnOnce(Path) -> F) -> Result<T>
    where
        F: Future<Output = object_store::Result<T>>,
    {
        let path = self.path(name)?;
        self.wait(call(path)).map_err(|error| self.refused(name, error))
    }

    fn wait<T>(&self, call: impl Future<Output = T>) -> T {
        self.0.runtime.block_on(call)
    }

    fn refused(&self, name: &str, error: object_store::Error) -> Error {
        use object_store::Error::{NotFound, PermissionDenied, Unauthenticated};
        // Some messages have the whole answer of the service.
        let message = error.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
        let within = |tag: &str| {
            let (_, rest) = message.split_once(&format!("<{tag}>"))?;
            Some(rest.split_once(&format!("</{tag}>"))?.0.to_string())
        };
        let help = match &error {
            _ if within("Code").as_deref() == Some("NoSuchBucket") => NO_BUCKET,
            NotFound { .. } => NO_BUCKET,
            PermissionDenied { .. } | Unauthenticated { .. } => {
                "check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and what they may do in the bucket"
            }
            _ => "check the network, AWS_REGION and AWS_ENDPOINT_URL",
        };
        let message = within("Message").unwrap_or(message);
        Error::Refused { place: self.place(name), message, help: help.into() }
    }
}

/// An object that grows, part by part.
pub struct Parts {
    bucket: Bucket,
    name: String,
    /// Bytes of the next part.
    rest: Vec<u8>,
    /// `None` while there is one part.
    upload: Option<Upload>,
}

impl Parts {
    /// A new object of this name.
    pub fn new(bucket: Bucket, name: &str) -> Parts {
        Parts { bucket, name: name.to_string(), rest: Vec::new(), upload: None }
    }

    /// Appends bytes.
    pub fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.rest.extend_from_slice(bytes);
        if self.rest.len() >= PART { self.send() } else { Ok(()) }
    }

    /// Ends the object without showing it: [`Bucket::complete`] does.
    pub fn seal(mut self) -> Result<Upload> {
        if self.upload.is_none() || !self.rest.is_empty() {
            self.send()?;
        }
        let none = Upload { id: String::new(), parts: Vec::new() };
        Ok(self.upload.take().unwrap_or(none))
    }

    /// Ends the object, and shows it.
    pub fn finish(mut self) -> Result<()> {
        if self.upload.is_none() {
            return self.bucket.put(&self.name, std::mem::take(&mut self.rest));
        }
        let (bucket, name) = (self.bucket.clone(), self.name.clone());
        let upload = self.seal()?;
        bucket.complete(&name, &upload)
    }

    fn send(&mut self) -> Result<()> {
        let upload = match &mut self.upload {
            Some(upload) => upload,
            None => self.upload.insert(self.bucket.begin(&self.name)?),
        };
        self.bucket.append(&self.name, upload, std::mem::take(&mut self.rest))
    }
}

/// An upload that is neither sealed nor complete is of no use.
impl Drop for Parts {
    fn drop(&mut self) {
        if let Some(upload) = self.upload.take()
            && let Err(error) = self.bucket.abandon(&self.name, &upload)
        {
            tracing::warn!(%error, "an upload cannot be given up");
        }
    }
}

impl fmt::Debug for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parts").field("name", &self.name).field("upload", &self.upload).finish()
    }
}
