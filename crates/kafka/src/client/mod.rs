//! A client of Kafka's protocol, with what a source and a sink need.

pub(crate) mod address;
pub(crate) mod away;
pub(crate) mod batch;
pub(crate) mod cluster;
mod counted;
pub(crate) mod encode;
pub(crate) mod fault;
mod login;
pub(crate) mod producer;
pub(crate) mod session;
pub(crate) mod settings;
pub(crate) mod tls;
mod transaction;
pub(crate) mod unpack;
mod user;
pub(crate) mod wire;
