//! Report for people: the fabrics of this machine, with their capabilities.

use std::fmt;

use crate::contract::Fabric;
use crate::endpoint::Provider;
use crate::error::{Error, Result};
use crate::setup::Token;
use crate::shm::ShmDevice;
use crate::sim::{Model, Sim};
use crate::tcp::TcpDevice;
use crate::verbs;
use crate::work::Limits;

/// A device, or why there is none. Its text is for people, several lines.
#[derive(Debug)]
pub struct Survey {
    /// Whose device it is.
    pub provider: Provider,
    /// The device's name or use.
    pub what: String,
    /// Its capabilities.
    pub limits: Result<Limits>,
}

impl Survey {
    fn new<F: Fabric>(provider: Provider, what: &str, device: Result<F>) -> Survey {
        let limits = device.map(|device| *device.limits());
        Survey { provider, what: what.into(), limits }
    }

    /// Whether something is wrong: every machine has the others, and most have no RDMA.
    pub fn is_missing(&self) -> bool {
        self.limits.is_err() && self.provider != Provider::Verbs
    }
}

/// All providers, and of verbs all devices. Nothing is left open.
pub fn survey() -> Vec<Survey> {
    let token = Token::new([0; 32]);
    let local = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
    let sim = Sim::new(0).node(Model::default());
    let mut found = vec![
        Survey::new(Provider::Shm, "between processes of this host", ShmDevice::open(token)),
        Survey::new(Provider::Tcp, "anywhere", TcpDevice::open(token, local)),
        Survey::new(Provider::Sim, "for tests, in one process", Ok(sim)),
    ];
    found.extend(rdma());
    found
}

/// All RDMA devices, or why there is none.
fn rdma() -> Vec<Survey> {
    let none = |what, error| Survey { provider: Provider::Verbs, what, limits: Err(error) };
    let names = match verbs::devices() {
        Ok(names) => names,
        Err(error) => return vec![none(String::new(), error)],
    };
    let open = |name: String| {
        let options = verbs::Options { device: Some(name.clone()), ..verbs::Options::default() };
        match verbs::Verbs::open(&options) {
            Ok(device) => Survey::new(Provider::Verbs, &device.to_string(), Ok(device)),
            Err(error) => none(name, error),
        }
    };
    names.into_iter().map(open).collect()
}

impl fmt::Display for Survey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, what) = (self.provider.name(), &self.what);
        match &self.limits {
            Ok(limits) => {
                write!(f, "{name}: available ({what})")?;
                write_limits(f, limits)
            }
            // The error's text says "not available" itself.
            Err(error @ Error::Unavailable { .. }) if what.is_empty() => {
                write!(f, "{name}: {error}")
            }
            Err(error @ Error::Unavailable { .. }) => write!(f, "{name}: {what}: {error}"),
            Err(error) => write!(f, "{name}: not available ({what}): {error}"),
        }
    }
}

fn write_limits(f: &mut fmt::Formatter<'_>, limits: &Limits) -> fmt::Result {
    let order = if limits.ordered_placement { "in address order" } else { "in any order" };
    let groups = if limits.multicast { "yes" } else { "no" };
    for (what, value) in [
        ("longest message", bytes(limits.message_bytes)),
        ("longest datagram", bytes(limits.datagram_bytes)),
        ("inline", bytes(limits.inline_bytes)),
        ("entries of a queue", limits.queue_entries.to_string()),
        ("completion entries", limits.completion_entries.to_string()),
        ("multicast groups", groups.to_string()),
        ("bytes become visible", order.to_string()),
    ] {
        write!(f, "\n    {what:<22} {value}")?;
    }
    Ok(())
}

fn bytes(count: usize) -> String {
    match count {
        _ if count >= 1 << 30 => format!("{} GiB", count >> 30),
        _ if count >= 1 << 20 => format!("{} MiB", count >> 20),
        _ if count >= 1 << 10 => format!("{} KiB", count >> 10),
        _ => format!("{count} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_provider_is_listed_and_only_rdma_may_be_missing() {
        let found = survey();
        for provider in [Provider::Shm, Provider::Tcp, Provider::Sim, Provider::Verbs] {
            assert!(found.iter().any(|found| found.provider == provider), "{provider:?}");
        }
        for found in &found {
            assert!(!found.is_missing(), "{found}");
        }
        let shm = found[0].to_string();
        assert!(shm.starts_with("shm: available (between processes of this host)\n"), "{shm}");
        assert!(shm.ends_with("bytes become visible   in address order"), "{shm}");
    }

    #[test]
    fn a_missing_library_is_said_in_words() {
        let error = Error::Unavailable { what: "RDMA", reason: "no device".into() };
        let found = Survey { provider: Provider::Verbs, what: String::new(), limits: Err(error) };
        assert_eq!(found.to_string(), "verbs: RDMA: not available: no device");
        assert!(!found.is_missing());
    }
}
