//! Channels: streams of messages between two workers, over any fabric (paper, section 6).
//!
//! A channel is a ring of slots in the consumer's memory. The producer acquires a slot in its own
//! copy of the ring, writes into the slot, and sends it with a one-sided write. The consumer finds
//! the slot by polling its own memory, processes the message where it is, and releases the slot.
//! Credit-based flow control keeps the producer from overwriting what has not been read.
//!
//! Promises: messages arrive in order, once each, whole; no slot is overwritten unread; only the
//! fabric copies, and nothing is allocated per message; a stream that does not end properly is an
//! error at the other side, never a hang. A channel does not reconnect, and does not order the
//! messages of different channels.
//!
//! File descriptors: over `tcp`, each side of a channel takes two. Over `shm`, the sender takes two
//! (three until it is connected) and the receiver three. A place where a thread sleeps takes one
//! more. Over `shm`, two connected devices take one each for all their channels. If the system has
//! no more to give, the error names `ulimit -n`; but over `tcp`, a caller whose peer has none left
//! only sees a time-out.
//!
//! Trust: the peer has presented the job's token, and is trusted not to write to a slot for which
//! it holds no credit. Everything else that it writes is checked before use, from a private copy.
//! Data from outside of the job must be copied out of the slot before they are parsed.
//!
//! ```
//! use std::time::Duration;
//! use millstream_fabric::{Fabric, setup::Token, shm::ShmDevice};
//! use millstream_flow::channel::*;
//!
//! let device = ShmDevice::open(Token::random()?)?;
//! let (mut there, mut here) = (device.events()?, device.events()?);
//! let sender = SenderSetup::new(&device, &there, Settings::default())?;
//! let receiver = ReceiverSetup::new(&device, &here, Settings::default())?;
//! let (to_receiver, to_sender) = (sender.hello(), receiver.hello());
//! let mut sender = sender.connect(&to_sender)?;
//! let mut receiver = receiver.connect(&to_receiver)?;
//!
//! let miller = std::thread::spawn(move || -> Result<Stats> {
//!     for number in 0..100_u64 {
//!         let mut slot = sender.acquire(&mut there, Duration::from_secs(5))?;
//!         slot.payload()[..8].copy_from_slice(&number.to_le_bytes());
//!         slot.send(8, number)?;
//!     }
//!     sender.finish(&mut there, Duration::from_secs(5))
//! });
//! let mut expected = 0_u64;
//! loop {
//!     match receiver.receive(&mut here, Duration::from_secs(5))? {
//!         Received::Message(message) => assert_eq!(*message, expected.to_le_bytes()),
//!         Received::Empty => panic!("nothing in five seconds"),
//!         Received::End => break,
//!     }
//!     expected += 1;
//! }
//! assert_eq!(expected, 100);
//! assert_eq!(miller.join().unwrap()?.messages, 100);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod error;
pub mod footer;
#[cfg(test)]
mod loom_tests;
mod receiver;
mod sender;
mod settings;
mod side;
mod stats;

pub use error::{Error, Result};
pub use receiver::{Message, Received, Receiver, ReceiverSetup, connect};
pub use sender::{Sender, SenderSetup, Slot};
pub use settings::{Notification, SLOT_BYTES_MAX, SLOTS_MAX, Settings};
pub use stats::Stats;
