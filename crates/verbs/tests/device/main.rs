//! Tests of every call of the crate on a real device. `tests/rdma` runs them in a virtual machine,
//! over the kernel's Soft-RoCE driver. Both ends of a connection are queue pairs of the same
//! device.

mod common;
mod connection;
mod datagram;
mod errors;
mod events;
mod multicast;
