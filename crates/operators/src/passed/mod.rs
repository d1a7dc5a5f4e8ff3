//! Passed rows: rows sent as keys and arguments. They are exchanged records, or rows that late
//! merge does not aggregate since their keys rarely repeat.
//!
//! [`Format`] writes rows into a slot of a channel, or into a buffer. [`fill`] goes on from one
//! slot to the next. Rows without a slot are kept in buffers ([`PassedRows`]). A [`Reader`] reads
//! rows where they stand.

mod buffers;
mod columns;
mod fill;
mod format;
mod gather;
mod onward;
mod read;
mod reader;
mod write;

pub use buffers::{Parcel, Passed, PassedBuffers, PassedRows, Pool};
pub(crate) use columns::{BatchRows, Keeping};
pub use fill::{Filled, Outlet, fill};
pub use format::{Format, HEAD_WORDS, SECTION_ROWS_MAX};
pub use gather::gather;
pub use onward::Onward;
#[doc(hidden)]
pub use read::Section;
pub use reader::{ReadRows, Reader};
pub use write::{Outgoing, mark, part};
