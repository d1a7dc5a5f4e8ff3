//! Tests of flows through their public interface, in one program: each program costs time to link.

mod bulk;
mod combine;
mod common;
mod counts;
mod hostile;
mod kinds;
mod multicast;
mod processes;
mod registry;
mod seeds;
mod threads;
mod verbs;
