//! The state of windowed operators: partial, mergeable, log-structured (paper, section 7).
//!
//! Every worker keeps its *own* partial state for whatever keys its input brings. The part for keys
//! that another worker leads is a *fragment*. At the end of an epoch the fragment's rows are sealed
//! into a [`Segment`] and handed to the leader, which merges it.
//!
//! Promises: a table belongs to one thread; a sealed segment is immutable and self-contained;
//! merging is associative and commutative, with the empty value neutral, to the last bit; sealing
//! takes constant time; nothing is allocated per record. Not covered: SQL types, windows, the
//! network, and the time of sealing.
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

mod deltas;
mod memory;
mod table;
mod values;
mod windows;

pub use deltas::clock::VectorClock;
pub use deltas::foreign::Malformed;
pub use deltas::fragment::{Fragment, Mode};
pub use deltas::saved::{RowGroup, TableCopy};
pub use memory::arena::Arena;
pub use memory::cache::near_cache_bytes;
pub use memory::hash::{hash_bytes, hash_each_word, hash_word, hash_words};
pub use memory::heap::{Heap, HeapUse, Idle};
pub use memory::log::{BLOCK_ROWS, CHUNK_ROWS, ChunkPool};
pub use memory::numbers::{float_from_ordered, float_to_ordered, read_i128};
pub use memory::prefetch::prefetch_block;
pub use memory::refused::on_refused_memory;
pub use memory::scratch::Scratch;
pub use table::buckets::{Buckets, Range};
pub use table::key::{Keys, NoVarKeys, VarKeys};
pub use table::keyed::{Load, Table};
pub use table::layout::{RowLayout, ValueSlot};
pub use table::partition::{Leaders, Own, PARTITIONS, partition_of};
pub use table::prefix::Prefix;
pub use table::rows::RowsRef;
pub use table::segment::Segment;
pub use table::value::{Block, read_bytes, read_decimal_sum};
pub use values::best::{best_elements, only_element, sort_key};
pub use values::blob::blob_bytes;
pub use values::chain::{chain_elements, chain_size};
pub use values::exact::Exact;
pub use values::float_sum;
pub use values::frequent::frequent_values;
pub use values::histogram::{bucket_of, histogram_quantile};
pub use values::kind::{Counted, ValueKind, Wanted};
pub use values::list::list_elements;
pub use values::moments;
pub use values::registers::registers_estimate;
pub use values::set::set_elements;
pub use windows::combiner::{Combiner, PaneOf, Single};
pub use windows::panes::{Overlap, Panes};
pub use windows::sessions::Sessions;
