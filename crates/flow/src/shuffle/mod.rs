//! Data shuffling: the rows of a query's nodes move to where their keys belong, over any fabric.
//!
//! This is the operator of *Design and Evaluation of an RDMA-aware Data Shuffling Operator for
//! Parallel Database Systems* (Liu, Yin, Blanas; TODS 44(4):17, 2019; "the paper" in this module),
//! with all eight of its designs:
//!
//! | | send and receive, RC | send and receive, UD | read, RC | write, RC |
//! |---|---|---|---|---|
//! | an endpoint per thread | `MEMQ/SR` | `MESQ/SR` | `MEMQ/RD` | `MEMQ/WR` |
//! | one endpoint for all | `SEMQ/SR` | `SESQ/SR` | `SEMQ/RD` | `SEMQ/WR` |
//!
//! A [`Sender`] and a [`Receiver`] are the paper's endpoints; four implementations of each serve
//! the eight designs. [`Shuffle`], [`Writer`] and [`Reader`] are its operators on top of them, and
//! [`Groups`] its transmission groups: repartition, multicast, broadcast.
//!
//! # What it promises
//!
//! - A message reaches every destination of its call, once and whole, or both ends get a typed
//!   error; a message without payload is a message. Over datagrams without [`Settings::sequences`]
//!   there is an exception, the paper's: a loss and a repetition in the same stream cancel out in
//!   the counts, unnoticed. Where [`Sender::finish`] is not an error, no message is missing; over
//!   datagrams the answer may itself be lost, and then the sender fails although its stream has
//!   arrived.
//! - Over reliable connections messages of one sender arrive at one receiver in the order of
//!   putting ([`Design::is_ordered`]). Over datagrams they arrive in any order; only the end waits
//!   for what it has overtaken.
//! - Every sender's stream ends once for every receiver, with [`State::Depleted`]. When all have
//!   ended, every thread of a receiver is told so, however often it asks.
//! - A peer whose process has ended, or whose host does not answer, is an error at every endpoint
//!   that still needs it, within two seconds if the endpoint is called meanwhile. Over connections:
//!   three quarters of a second of silence, which providers may double, and a quarter until an idle
//!   connection asks. Over datagrams: a second of silence; a receiver whose threads hold all
//!   messages of a source waits for none, and notices a second after it has released one. An
//!   endpoint that fails, or is dropped before it has finished, tells its peers: connections break,
//!   and over datagrams it says so, as far as credit goes. Errors stay: each call repeats the
//!   first.
//! - A process that stands still though its host answers (`SIGSTOP`) is noticed over datagrams, and
//!   by designs that need its receives. Who reads and writes its memory does not need it: `RD` and
//!   `WR:messages` wait, for as long as they are told.
//! - Calls that begin with `try_`, [`Sender::put`], [`Sender::keep_alive`] and
//!   [`Delivery::release`] never wait; the others wait for as long as they are told.
//! - Memory is registered when an endpoint is opened, and gone when it is dropped, whatever has
//!   happened in between. [`Settings::sender_bytes`] and [`Settings::receiver_bytes`] compute how
//!   much; [`Counters`] say how much there is.
//!
//! Endpoints have no threads of their own: callers do their work. They do not retry, reconnect or
//! send datagrams again, and do not order the streams of different senders. Rows are bytes to them.
//!
//! # States of a buffer
//!
//! At a sender (paper, section 6.2): *Wait*, free; *Populate*, a [`Buffer`] in a thread's hands;
//! *Transmit*, put, until every destination is done with it. At a receiver: *Transmit*, the sender
//! may fill it; *Consume*, a [`Delivery`] in a thread's hands or waiting for one; *Wait*, free,
//! only where the receiver reads. "Done" depends on the design: the card has sent it (SR over UD),
//! the peer's card has it (SR and WR over RC), or the receiver has released it (RD), so that there
//! one slow reader keeps buffers from everybody (section 7.1.4).
//!
//! A thread may hold messages, but a source whose buffers are all held sends nothing more: with
//! depth `k` and credit after `f`, a receiver's threads hold at most `k - f` of a source while they
//! wait for another.
//!
//! # Flow control
//!
//! Credit is the absolute count of receives posted for a sender since the beginning (section 5.2);
//! repeating it is harmless. It is written back after every `f` receives
//! ([`Settings::credit_every`]; the paper chooses 2). `f` greater than the buffers for a peer would
//! wait for ever, and is refused when an endpoint is opened. Per message, a design posts:
//!
//! | design | requests for a transfer | polled by the receiver |
//! |---|---|---|
//! | SR over RC, UD | send, 1/f credits | completions |
//! | RD | valid entry, read, free entry | a word per sender, completions |
//! | WR, buffers | data, free entry: 2 writes | a word per sender |
//! | WR, message queue | data, valid entry, free entry: 3 writes | a word per sender |
//! | WR, completion queue | data, free entry, 1/f credits: 2.5 writes at f = 2 | completions |
//!
//! # What the paper leaves open, and what is done here
//!
//! - *Does `PutData` wait?* Section 4.2 says no, 5.2 says for credit. Here putting does not: a
//!   message without credit stays in its buffer, in line for its destination, and any later call
//!   sends it. So only acquiring a buffer waits, a slow destination does not hold up the others of
//!   its group, and a thread that goes away after putting calls [`Sender::flush`].
//! - *How does credit travel over UD*, which has no writes? As a datagram; the largest value
//!   counts, and is repeated eight times in [`Settings::silence`], since it may be lost. The
//!   repetition also tells the sender that the receiver lives. A sender says the same with a
//!   datagram that takes credit as all messages do, so receives and sends stay in step.
//! - *When does a sender of datagrams end?* The paper's ends when its card has sent all, and never
//!   learns of a loss. Here the receiver reports the whole stream, and repeats the report like
//!   credit. So a sender needs receivers that are called until their end, as in designs that read.
//! - *A lost `Depleted`* cannot start the timer of section 5.3. So there are two: after `Depleted`,
//!   [`Settings::stragglers`] without a message; before it, [`Settings::silence`] without a message
//!   from a sender that has credit. A thread that itself stays away for longer than a quarter of
//!   that time judges nobody until it has been back for as long as it takes.
//! - *Totals.* A datagram's immediate value is its number for its destination. The number of
//!   `Depleted` is the last, and so the total, without a field of its own, although a buffer goes
//!   to several destinations. A number has 32 bits, which wrap: no more than a source's buffers can
//!   be missing, so the total is the nearest. [`Settings::sequences`] checks the numbers.
//! - *Parity at the end* (section 5.2: as many sends as receives) is not kept: receives that are
//!   left over are flushed when a queue pair is closed.
//! - *Poll Buffers* looks at every buffer in the paper, `n · k` words. Here a sender fills buffers
//!   in the order in which they were freed, which also keeps messages in order, so the next is
//!   known and a round looks at `n` words. A whole buffer is written whatever its payload, so that
//!   data and seal are one write.
//! - *Immediate values* have 4 bytes, too few for an address: they carry the buffer's number, and
//!   in the highest bit whether it is the last.
//! - *Headers*: [`wire`] describes them. Entries of queues carry the lap of their queue, so nothing
//!   is cleared, and a stale entry is never taken for a new one.
//! - *Depleted* of an endpoint that threads share is put by the last of them ([`Writer::finish`]),
//!   after everybody's last message. It goes to all destinations once, whatever groups they are in.
//! - *A node's own part* goes through the fabric, as all others do; destinations are what the
//!   caller connects.
//! - *Thread safety*: a lock for each endpoint, held for a call, for which the threads of an
//!   endpoint contend.
//! - *Adaptive buffers* (section 6.2, [`Depth::Adaptive`]). A sender adds a buffer if none is free,
//!   and retires all free ones but one, as in the paper. A receiver that adds whenever nothing is
//!   ready would add without end while the network is what is slow. So it adds only for a source
//!   that may fill fewer than `f` buffers, the others being with this receiver's threads; and it
//!   retires, when they are released, all but the first of those that are ready at once. A sender
//!   that makes messages faster than they leave does go up to the most, as in the paper: there the
//!   most is the bound. Neither goes below the least nor above the most. Credit is never taken
//!   back: a retired buffer is not posted again. The paper's pool is [`Pool`]. What peers address
//!   by themselves (the sender's buffers in RD, the receiver's in WR) is registered once for the
//!   most, and only circulates or not.
//! - *Bandwidth-delay rule* (section 6.1, [`Depth::BandwidthDelay`]): for each connection as much
//!   as if it had the link alone, and not less than `f` or 2.
//!
//! # Trust
//!
//! Peers have presented the job's token and are trusted not to write to a buffer for which they
//! hold no credit. Everything else that they write (headers, entries, immediate values) is checked,
//! from a private copy, before it is used. Datagrams of unknown senders are dropped.
//!
//! # Example
//!
//! ```
//! use std::time::Duration;
//! use millstream_fabric::{setup::Token, shm::ShmDevice};
//! use millstream_flow::shuffle::*;
//!
//! let device = ShmDevice::open(Token::random()?)?;
//! let settings = Settings::new("SEMQ/WR".parse()?);
//! // One sender with id 1 and two receivers, which hand each other their messages out of band.
//! let sender = SenderSetup::new(&device, 1, 2, settings)?;
//! let left = ReceiverSetup::new(&device, 2, 1, settings)?;
//! let right = ReceiverSetup::new(&device, 3, 1, settings)?;
//! let (to_left, to_right) = (sender.hello(0), sender.hello(1));
//! let sender = sender.connect(&[left.hello(0), right.hello(0)])?;
//! let receivers = [left.connect(&[to_left])?, right.connect(&[to_right])?];
//!
//! let patience = Duration::from_secs(5);
//! let counts = std::thread::scope(|scope| -> Result<Vec<usize>> {
//!     let readers: Vec<_> = receivers
//!         .iter()
//!         .map(|receiver| {
//!             scope.spawn(move || -> Result<usize> {
//!                 let mut rows = 0;
//!                 while let Some(message) = receiver.get(patience)? {
//!                     rows += message.len() / 8;
//!                 }
//!                 Ok(rows)
//!             })
//!         })
//!         .collect();
//!     let shuffle = Shuffle::new(&sender, Groups::repartition(2), 1, patience)?;
//!     let mut writer = shuffle.writer()?;
//!     for key in 0..1000_u64 {
//!         let hash = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
//!         writer.push(shuffle.groups().of_hash(hash), &key.to_le_bytes())?;
//!     }
//!     writer.finish()?;
//!     readers.into_iter().map(|reader| reader.join().expect("no panic")).collect()
//! })?;
//! assert_eq!(counts.iter().sum::<usize>(), 1000);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod attention;
mod counters;
mod design;
mod endpoint;
mod error;
mod groups;
mod hello;
mod links;
mod operator;
mod pool;
mod receive;
mod send;
mod settings;
#[cfg(test)]
mod sleep_tests;
pub mod wire;

pub use counters::Counters;
pub use design::{Design, Endpoints, Notification, Transport};
pub use error::{Error, Result};
pub use groups::Groups;
pub use operator::{Reader, Shuffle, Writer};
pub use pool::Pool;
pub use receive::{Delivery, Received, Receiver, ReceiverSetup, Seen, Window};
pub use send::{Buffer, Sender, SenderSetup};
pub use settings::{Depth, Settings};
pub use wire::State;
