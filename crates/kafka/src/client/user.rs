//! The name and the password of a client.

use std::fmt;

/// A text that no message and no log shows.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret(pub(crate) String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// How a name and a password are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mechanism {
    Plain,
    Scram(Hash),
}

impl Mechanism {
    pub(super) fn name(self) -> &'static str {
        match self {
            Mechanism::Plain => "PLAIN",
            Mechanism::Scram(Hash::Sha256) => "SCRAM-SHA-256",
            Mechanism::Scram(Hash::Sha512) => "SCRAM-SHA-512",
        }
    }
}

/// Whom a broker should take us for.
#[derive(Debug, Clone)]
pub(crate) struct User {
    pub(crate) mechanism: Mechanism,
    pub(crate) name: String,
    pub(crate) password: Secret,
}

/// The hash of SCRAM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hash {
    Sha256,
    Sha512,
}
