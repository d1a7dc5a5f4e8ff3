//! A binding to libibverbs, the library of RDMA: its calls and layouts, without policy. The library
//! is opened at run time.
//!
//! Building this crate needs nothing of libibverbs, and a program that uses it starts on any
//! machine. The program asks whether there is RDMA:
//!
//! ```
//! match millstream_verbs::devices() {
//!     Ok(devices) => devices.iter().for_each(|device| println!("{}", device.name)),
//!     // "RDMA: not available: …", with the reason and what to do.
//!     Err(unavailable) => println!("{unavailable}"),
//! }
//! ```
//!
//! Covered: reliable connections and unreliable datagrams; write, write with immediate, read, send,
//! receive, fetch-and-add, compare-and-swap; inline data, selective signalling, posted lists;
//! address handles, multicast groups, completion channels, asynchronous events; memory in
//! ordinary and huge pages. Posting and polling go straight through the driver's own functions:
//! nothing is allocated, and no system call is made but the driver's.
//!
//! Promises: an object lives as long as anything made from it, so objects are destroyed in the
//! right order; every error names the call and the system's reason; a request can only reach memory
//! that is registered. Not covered: the choice of a port, a GID, queue lengths and time-outs;
//! retries; protocols. Memory that a peer may write to is not Rust memory. The crate makes no slice
//! over such memory; the protocol above decides which bytes may be read when.
//!
//! The crate needs Linux on a 64-bit machine and, at run time, rdma-core 32 or newer. After `fork`,
//! the child must not use what the parent made.
//!
//! ```no_run
//! use millstream_verbs::*;
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let context = Context::open("rxe0")?;
//! let domain = ProtectionDomain::new(&context)?;
//! let memory = Memory::new(1 << 20, Pages::Ordinary)?;
//! let region = MemoryRegion::new(&domain, memory, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
//! let queue = CompletionQueue::new(&context, 64, None, 0)?;
//! let pair = QueuePair::new(&domain, &QueuePairOptions {
//!     transport: Transport::Reliable,
//!     send_queue: &queue,
//!     receive_queue: &queue,
//!     capacity: Capacity {
//!         sends: 16,
//!         receives: 16,
//!         send_pieces: 1,
//!         receive_pieces: 1,
//!         inline_bytes: 64,
//!     },
//!     all_signaled: false,
//! })?;
//! pair.initialize_reliable(1, Access::REMOTE_WRITE)?;
//! // … exchange numbers, GIDs and keys with the peer, `connect`, `start_reliable` …
//! # let peers_memory = region.remote(0);
//! let pieces = [region.piece(0, 4096).expect("inside")];
//! pair.post_send(&mut [SendRequest::write(7, &pieces, peers_memory).signaled()])?;
//! let mut done = [Completion::default(); 16];
//! let count = queue.poll(&mut done)?;
//! # Ok(())
//! # }
//! ```

mod completion;
mod device;
mod error;
mod event;
#[cfg(test)]
mod layout_tests;
mod library;
mod memory;
mod path;
mod port;
mod queue_pair;
mod raw;
mod wait;
mod work;

pub use completion::{Completion, CompletionChannel, CompletionQueue, Operation, Status};
pub use device::{Context, DeviceLimits, DeviceName, devices};
pub use error::{Error, PostError, Unavailable};
pub use event::{AsyncEvent, EventSource};
pub use memory::{Access, Memory, MemoryRegion, Pages, ProtectionDomain, RemoteAddress};
pub use path::{AddressHandle, Path};
pub use port::{Gid, GidEntry, GidKind, Mtu, Port};
pub use queue_pair::{Capacity, Peer, QueuePair, QueuePairOptions, Retries, State, Transport};
pub use wait::wait_readable;
pub use work::{InlineData, ReceiveRequest, SendRequest, Sge};
