//! Transactions on shared state inside a stream (TStream).
//!
//! This implements Zhang, Wu, Zhang and He, *Scaling Stream Processing with Transactional State
//! Management on Multicores* (2019; "the paper" in this crate).
//!
//! An event reads and changes rows of several keys, as one transaction: whole or not at all. The
//! result is as if events were executed one by one, in their order (the paper's ACID+O, definition
//! 2).
//!
//! ```
//! use millstream_txn::*;
//!
//! struct Transfer { source: u64, target: u64, amount: u64 }
//! struct Transfers;
//!
//! impl Application for Transfers {
//!     type Event = Transfer;
//!     type Output = (u64, bool);
//!     fn post_process(&self, _: &Transfer, outcome: &Outcome<'_>) -> (u64, bool) {
//!         (outcome.order(), outcome.verdict().is_ok())
//!     }
//! }
//!
//! let mut store = Store::new();
//! let spec = TableSpec::new("accounts", 1, 1).check("balance >= 0", |row| row[0] as i64 >= 0);
//! let accounts = store.add(spec)?;
//! store.insert(accounts, &[1], &[100])?;
//! store.insert(accounts, &[2], &[0])?;
//!
//! let mut transfer = Program::new("transfer");
//! let source = Key::of(|event: &Transfer, _| [event.source]);
//! let target = Key::of(|event: &Transfer, _| [event.target]);
//! transfer.update(accounts, source, &[], |view, row| {
//!     row[0] = row[0].wrapping_sub(view.event().amount);
//! });
//! transfer.update(accounts, target, &[], |view, row| row[0] += view.event().amount);
//!
//! let manager = Manager::new(Scheme::TStream, store);
//! let running = manager.start(Transfers, vec![transfer], 1)?;
//! let Running { mut numbering, mut workers, tables } = running;
//! for (source, target, amount) in [(1, 2, 70), (1, 2, 70), (2, 1, 50)] {
//!     let event = Transfer { source, target, amount };
//!     workers[0].take(numbering.ticket(&event), event)?;
//! }
//! let mut results = Vec::new();
//! workers[0].punctuate();
//! workers[0].finish(&mut |result| results.push(result));
//! assert_eq!(results, [(0, true), (1, false), (2, true)]);
//! assert_eq!(tables.store().rows(accounts), [(vec![1], vec![80]), (vec![2], vec![20])]);
//! # Ok::<(), Error>(())
//! ```
//!
//! # Schemes
//!
//! | scheme | order | how |
//! |---|---|---|
//! | [`Scheme::TStream`] | yes | chains of operations, executed at a punctuation; no locks |
//! | [`Scheme::Lal`] | yes | all lock requests are inserted in turn |
//! | [`Scheme::Lwm`] | yes | as LAL, with versions: reads block no writes |
//! | [`Scheme::Pat`] | yes | a turn in each partition |
//! | [`Scheme::Nocc`] | no | locks without waiting, and retries |
//!
//! # What it promises
//!
//! - With the first four, tables, results and reasons of aborts follow from the tables before, the
//!   events and their order. The number of workers, punctuations and the timing of threads make no
//!   difference.
//! - With NOCC, the result is that of one by one execution in the order that
//!   [`Outcome::serial`] tells.
//! - An aborted transaction leaves no trace but its result, which names the first failing
//!   statement.
//! - A step is bounded and waits for no other worker, so workers may also run on one thread.
//! - In the steady state nothing is allocated for an operation.
//! - There is no `unsafe` code here: rows are relaxed atomics, and schemes order their accesses.
//!
//! Not covered: SQL and its types, durability, several processes, keys that depend on values that
//! were read (the paper's limit, section 4.5).

#![cfg_attr(not(test), forbid(unsafe_code))]
#![cfg_attr(
    test,
    allow(clippy::duplicate_mod, reason = "models compile files with loom's atomics")
)]

#[cfg(test)]
extern crate self as millstream_txn;

mod error;
mod locks;
mod manager;
mod outcome;
mod planted;
mod program;
mod scheme;
mod store;
mod template;
mod ticket;
mod tstream;

#[cfg(test)]
mod planted_tests;

pub use error::{Error, Result};
pub use manager::{Manager, Running, Tables, Worker};
pub use outcome::{Abort, Cause, Verdict};
pub use program::slots::Value;
pub use program::statement::{Key, Overflow};
pub use program::view::View;
pub use program::{Access, Program};
pub use scheme::{Scheme, Settings};
pub use store::{Store, TableId, TableSpec};
pub use template::{Application, Outcome, Progress};
pub use ticket::{Numbering, Ticket, pat_partition};
pub use tstream::execute::Counts;
