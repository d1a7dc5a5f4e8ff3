//! The state of windowed operators: partial, mergeable, log-structured (paper, section 7).
//!
//! Every worker keeps its *own* partial state for whatever keys its input brings. The part for keys
//! that another worker leads is a *fragment*. At the end of an epoch the fragment's rows are sealed
//! into a [`Segment`] and handed to the leader, which merges it.
//!
//! What this crate promises: a table belongs to one thread; a sealed segment is immutable and
//! self-contained; merging is associative and commutative, with the empty value neutral, to the
//! last bit; sealing takes constant time; nothing is allocated per record. What it does not do: it
//! knows no SQL types, no windows and no network, and it does not decide when to seal.
//!
//! ```
//! use std::sync::Arc;
//! use millstream_state::*;
//!
//! // Rows: one word of key, one count.
//! let layout = Arc::new(RowLayout::new(1, vec![], &[(ValueKind::Count, false)]));
//! let count = layout.values()[0];
//! let mut pool = ChunkPool::new(layout.row_words(), 1 << 20, None);
//! let mut scratch = Scratch::default();
//! let mut update = |table: &mut Table, words: &[u64], pool: &mut ChunkPool| {
//!     let hashes: Vec<u64> = words.iter().map(|w| hash_word(*w)).collect();
//!     let keys = Keys { hashes: &hashes, ahead: &[], words, vars: NoVarKeys };
//!     table.update(&keys, pool, &mut scratch).count(count, None);
//! };
//!
//! let (mut helper, mut leader) = (Table::new(layout.clone()), Table::new(layout.clone()));
//! update(&mut helper, &[7, 8, 7], &mut pool);
//! update(&mut leader, &[7], &mut pool);
//! let delta = helper.seal();
//! assert_eq!((delta.rows(), helper.rows()), (2, 0));
//! leader.merge(&delta, &mut pool, &mut scratch);
//!
//! let rows = leader.scan(0);
//! let mut counts: Vec<_> = rows.words(0).zip(rows.words(1)).collect();
//! counts.sort();
//! assert_eq!(counts, [(7, 3), (8, 1)]);
//! ```

mod arena;
mod best;
mod blob;
mod blobs;
mod buckets;
mod chain;
mod clock;
mod compact;
mod direct;
mod exact;
mod filling;
mod find;
pub mod float_sum;
mod foreign;
mod fragment;
mod frequent;
mod hash;
mod heap;
mod histogram;
mod hot;
mod index;
mod key;
mod kind;
mod lanes;
mod layout;
mod list;
mod log;
mod logs;
mod memory;
mod merge;
pub mod moments;
mod noted;
mod numbers;
mod packs;
mod partition;
mod prefix;
mod refused;
mod registers;
mod rows;
mod runs;
mod scratch;
mod segment;
mod sessions;
mod set;
mod sliding;
mod split;
mod spread;
mod table;
mod unpack;
mod value;
mod words;

pub use arena::Arena;
pub use best::{best_elements, sort_key};
pub use blob::blob_bytes;
pub use buckets::{Buckets, Range};
pub use chain::{chain_elements, chain_size};
pub use clock::VectorClock;
pub use exact::Exact;
pub use foreign::Malformed;
pub use fragment::{Costs, Fragment, Mode};
pub use frequent::frequent_values;
pub use hash::{hash_bytes, hash_each_word, hash_word, hash_words};
pub use heap::{Heap, HeapUse, Idle};
pub use histogram::{bucket_of, histogram_quantile};
pub use key::{Keys, NoVarKeys, VarKeys};
pub use kind::{Counted, ValueKind, Wanted};
pub use layout::{RowLayout, ValueSlot};
pub use list::list_elements;
pub use log::{BLOCK_ROWS, CHUNK_ROWS, ChunkPool};
pub use numbers::{float_from_ordered, float_to_ordered, read_i128};
pub use partition::{Leaders, Own, PARTITIONS, partition_of};
pub use prefix::Prefix;
pub use refused::on_refused_memory;
pub use registers::registers_estimate;
pub use rows::RowsRef;
pub use scratch::Scratch;
pub use segment::Segment;
pub use sessions::{Pass, Sessions};
pub use set::set_elements;
pub use sliding::Sliding;
pub use spread::Spread;
pub use table::{Load, Table};
pub use unpack::{Overlap, Unpack};
pub use value::{Block, read_bytes, read_decimal_sum};
