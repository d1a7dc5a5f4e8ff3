//! A journal: bytes of an input that cannot be read again, durable before they count.
//!
//! Entries are appended by any number of threads. Entries that come while the disk syncs are
//! written together and share the next sync. A [`Reader`] sees durable entries only. Bytes have
//! offsets that stay the same in later runs of the program.
//!
//! **Files.** `segment-N` is a row of frames with checksums, and `lock` keeps other jobs
//! away. A segment gets its name when its head is durable. No file is ever written again by a later
//! run, or after a failure: a new segment begins where the durable entries end, and what the
//! segment before has from there on does not count.
//!
//! **Promises.** An entry for which [`Journal::append`] returned `Ok` is lost by no crash, and an
//! entry with the same [`Sequence`] does not count again. What a crash has torn is left out, for a
//! frame is written after the frame before is durable. So a damaged frame with a whole frame behind
//! it is an error.
//!
//! ```
//! use std::sync::Arc;
//! use std::task::Waker;
//! use millstream_store::disk::{CrashDisk, Survival};
//! use millstream_store::journal::{Appended, Journal};
//!
//! # fn main() -> millstream_store::Result<()> {
//! let disk = CrashDisk::default();
//! let open = || Journal::open(Arc::new(disk.clone()), "/journal", "clicks", 1 << 20);
//! let journal = open()?;
//! assert_eq!(journal.append(Some(b"a\n"), None)?, Appended::Durable);
//! drop(journal);
//! disk.restart(Survival::Synced); // The power fails.
//! let mut reader = open()?.reader(0)?;
//! let entry = reader.next(Waker::noop())?.expect("an entry");
//! assert_eq!(entry.bytes, Some(b"a\n".to_vec()));
//! # Ok(())
//! # }
//! ```

mod frame;
mod log;
mod opening;
mod producers;
mod reader;
mod segments;

pub use self::frame::{Entry, Sequence};
pub use self::log::{Appended, Journal};
pub use self::producers::PRODUCERS_MAX;
pub use self::reader::Reader;

#[cfg(test)]
mod tests;
