//! The form of rows that are sent as keys and arguments: exchanged records, and those that late
//! merge passes through since their keys rarely repeat.
//!
//! [`Format`] writes them into a slot of a channel, or into a buffer. [`fill`] goes on from one
//! slot to the next. Rows that find no slot are kept in buffers ([`PassedRows`]). A [`Reader`]
//! reads them where they stand.

mod buffers;
mod fill;
mod format;
mod gather;
mod onward;
mod read;
mod reader;
mod write;

pub(crate) use buffers::{Parcel, Passed, PassedRows, Passing, Pool};
pub(crate) use fill::{Filled, Outlet, fill};
pub(crate) use format::{Format, HEAD_WORDS, SECTION_ROWS_MAX};
pub(crate) use gather::gather;
pub(crate) use onward::Onward;
#[cfg(test)]
pub(crate) use read::Section;
pub(crate) use reader::{ReadRows, Reader};
pub(crate) use write::{Outgoing, mark, part};
