//! Data shuffling: rows move by key between the nodes of a query, over any fabric.
mod counters;
mod design;
mod error;
mod groups;
mod link;
mod operator;
mod pool;
mod receive;
mod send;
mod settings;
mod wait;
pub mod wire;

pub use counters::Counters;
pub use design::{Design, Endpoints, Notification, Transport};
pub use error::{Error, Result};
pub use groups::Groups;
pub use operator::{Reader, Shuffle, Writer};
pub use pool::Pool;
pub use receive::{Delivery, Received, Receiver, ReceiverSetup};
pub use send::{Buffer, Sender, SenderSetup};
pub use settings::{Depth, Settings};
pub use wire::State;
