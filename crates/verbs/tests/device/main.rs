//! Every call of the crate on a real device: `tests/rdma` runs these in a virtual machine, over the
//! kernel's Soft-RoCE driver. Both ends are queue pairs of the same device.

mod common;
mod connection;
mod datagram;
mod errors;
mod events;
mod shared;
