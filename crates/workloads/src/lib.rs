//! The benchmark workloads: data, queries and answers for every compared engine.
//!
//! | module | content |
//! |---|---|
//! | [`spec`] | name and size of a workload: everything else follows from a [`Spec`] |
//! | [`query`] | the same question as SQL text |
//! | [`window`] | windows other than a workload's own |
//! | [`generate`](mod@generate) | the data, as Arrow record batches, dealt to splits |
//! | [`zipf`] | keys with a Zipf distribution in place of the workload's own |
//! | [`verify`] | the summary of an answer, cheap enough to run inside the timed region |
//! | [`golden`] | the published answers at the published sizes |
//! | [`oracle`](mod@oracle) | the answer at any size, by a plain hash map |
//! | [`handwritten`] | the ceiling: one tight loop over the same batches |
//! | [`nexmark`] | the event stream of NEXMark, as Flink's suite has it |
//!
//! # Promises
//!
//! Data depend on the [`Spec`] alone: the number of splits only distributes the records. A
//! throughput counts only if the answer is right, so [`Verifier`] sees every result row.
//! [`oracle`](mod@oracle) shares no code with the rest, so that agreement means something.
//!
//! # Limits
//!
//! Nothing here knows an engine.
//!
//! ```
//! use millstream_workloads::{Spec, Workload, generate, handwritten, oracle};
//!
//! let spec = Spec { records: 10_000, ..Spec::new(Workload::Nb7) };
//! let splits = generate(&spec, 1, 1024);
//! let answer = handwritten::run(&spec, &splits[0])?.answer();
//! assert_eq!(answer, oracle(&spec));
//! # Ok::<(), millstream_workloads::Error>(())
//! ```

pub mod error;
pub mod generate;
pub mod golden;
pub mod handwritten;
pub mod nexmark;
pub mod oracle;
pub mod query;
mod rows;
pub mod spec;
pub mod verify;
pub mod window;
pub mod zipf;

pub use error::{Error, Result};
pub use generate::{BatchIter, generate, generate_by_key, generate_some, schema};
pub use golden::expected;
pub use oracle::{oracle, oracle_by_split};
pub use query::sql;
pub use spec::{Spec, Workload};
pub use verify::{Answer, Bounds, Verifier};
pub use window::Window;
pub use zipf::{ZIPF_KEYS_MAX, Zipf};
