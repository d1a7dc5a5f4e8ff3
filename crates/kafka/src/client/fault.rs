//! Faults of the conversation between a client and its brokers.

use std::fmt::Display;
use std::io;

use kafka_protocol::error::{ParseResponseErrorCode, ResponseError};
use millstream_contract::Error;

use super::address::Address;

/// The result of a conversation with a broker.
pub(crate) type Outcome<T> = Result<T, Fault>;

/// A failed conversation.
#[derive(Debug, Clone)]
pub(crate) enum Fault {
    /// May pass: a broker is away, or a partition has a new leader.
    Retry(String),
    /// The broker has ended a transaction, which has to begin anew.
    Aborted(String),
    /// Does not pass by itself.
    Fatal { place: String, message: String, help: String },
}

impl Fault {
    pub(crate) fn retry(message: String) -> Fault {
        Fault::Retry(message)
    }

    /// A connection failed.
    pub(crate) fn io(address: &Address, error: &io::Error) -> Fault {
        if error.kind() == io::ErrorKind::InvalidData {
            // What TLS does not like, on this side or on the other.
            return Fault::Fatal {
                place: format!("broker {address}"),
                message: format!("the encrypted connection ends: {error}"),
                help: "if the broker asks who we are, check 'properties.ssl.keystore.location'"
                    .into(),
            };
        }
        let message = match error.kind() {
            io::ErrorKind::UnexpectedEof => "the broker closed the connection".to_string(),
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => "no answer in time".to_string(),
            _ => error.to_string(),
        };
        Fault::Retry(format!("broker {address}: {message}"))
    }

    /// Nobody answers at an address.
    pub(crate) fn unreachable(address: &Address, error: &io::Error) -> Fault {
        Fault::Retry(format!("broker {address}: no connection: {error}"))
    }

    /// The peer at an address is no broker.
    pub(crate) fn no_kafka(address: &Address, error: &dyn Display) -> Fault {
        Fault::Fatal {
            place: format!("broker {address}"),
            message: format!("expected a broker of Kafka, found something else: {error}"),
            help: "check host and port in 'properties.bootstrap.servers', and \
                   'properties.security.protocol': a listener with TLS answers nobody without"
                .into(),
        }
    }

    /// The first message got no answer: often one side speaks TLS and the other does not. A broker
    /// that is about to start or to end does the same.
    pub(crate) fn at_first_message(self, tls: bool) -> Fault {
        match self {
            Fault::Retry(message) if !tls && message.contains("closed the connection") => {
                Fault::Retry(format!(
                    "{message} at the first message; if the listener expects TLS or a password, \
                     set 'properties.security.protocol' to SSL, SASL_PLAINTEXT or SASL_SSL"
                ))
            }
            other => other,
        }
    }

    /// A broker answers with an error.
    pub(crate) fn broker(address: &Address, what: &str, error: ResponseError) -> Fault {
        match error.is_retriable() {
            true => Fault::Retry(format!("broker {address}: {what}: {error}")),
            false => Fault::Fatal {
                place: format!("broker {address}"),
                message: format!("{what}: {error}"),
                help: String::new(),
            },
        }
    }

    /// A broker answers a producer of a topic with an error.
    pub(crate) fn of_producer(id: &str, topic: &str, what: &str, error: ResponseError) -> Fault {
        let fatal = |place: String, message: String, help: &str| Fault::Fatal {
            place,
            message,
            help: help.into(),
        };
        match error {
            ResponseError::ProducerFenced | ResponseError::InvalidProducerEpoch => fatal(
                format!("transactional id '{}'", id.escape_debug()),
                "another job writes with the same id".into(),
                "give each job a 'sink.transactional-id-prefix' of its own",
            ),
            // A batch, or the whole transaction, has lost its place: rows are written again.
            ResponseError::TransactionAbortable
            | ResponseError::InvalidTxnState
            | ResponseError::InvalidProducerIdMapping
            | ResponseError::UnknownProducerId
            | ResponseError::OutOfOrderSequenceNumber => Fault::Aborted(format!("{what}: {error}")),
            // Of an earlier transaction that is still being ended, of a group that is being moved.
            ResponseError::ConcurrentTransactions | ResponseError::UnstableOffsetCommit => {
                Fault::retry(format!("{what}: {error}"))
            }
            ResponseError::TransactionalIdAuthorizationFailed
            | ResponseError::TopicAuthorizationFailed
            | ResponseError::GroupAuthorizationFailed
            | ResponseError::ClusterAuthorizationFailed => fatal(
                format!("topic '{topic}'"),
                format!("{what}: {error}"),
                "the user needs the rights to write to the topic, to the transactional id, and to \
                 read the group of the same name",
            ),
            error if error.is_retriable() => Fault::retry(format!("{what}: {error}")),
            error => fatal(format!("topic '{topic}'"), format!("{what}: {error}"), ""),
        }
    }

    pub(crate) fn internal(message: String) -> Fault {
        Fault::Fatal { place: "kafka".into(), message, help: "please report it".into() }
    }

    /// As the error of a job. `servers` is who was asked.
    pub(crate) fn error(self, servers: &str) -> Error {
        match self.told(servers) {
            Error::Io { place, message, help } => Error::Io {
                place: printable(&place),
                message: printable(&message),
                help: printable(&help),
            },
            other => other,
        }
    }

    fn told(self, servers: &str) -> Error {
        match self {
            Fault::Fatal { place, message, help } => Error::Io { place, message, help },
            Fault::Retry(message) | Fault::Aborted(message) => Error::Io {
                place: format!("kafka {servers}"),
                message,
                help: "check 'properties.bootstrap.servers', and whether the broker runs".into(),
            },
        }
    }

    /// For a notice.
    pub(crate) fn text(&self) -> String {
        printable(&self.words())
    }

    fn words(&self) -> String {
        match self {
            Fault::Retry(message) | Fault::Aborted(message) => message.clone(),
            Fault::Fatal { place, message, .. } => format!("{place}: {message}"),
        }
    }
}

/// The error behind a code of a response, if it is one.
pub(crate) fn error_of(code: i16) -> Option<ResponseError> {
    code.err()
}

/// A text in which names and messages of brokers cannot steer a terminal.
fn printable(text: &str) -> String {
    let escaped = |character: char| match character {
        '"' | '\'' | '\\' => character.to_string(),
        other => other.escape_debug().to_string(),
    };
    text.chars().map(escaped).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_brokers_say_does_not_steer_a_terminal() {
        let fault = Fault::Fatal {
            place: "broker \u{1b}[2Jhost:1".into(),
            message: "user 'm\u{fc}ller': \u{202e}\n\u{7}".into(),
            help: "mechanisms: \u{9b}".into(),
        };
        let escaped = "broker \\u{1b}[2Jhost:1: user 'm\u{fc}ller': \\u{202e}\\n\\u{7}";
        assert_eq!(fault.text(), escaped);
        let shown = fault.error("here").to_string();
        assert!(shown.starts_with(escaped) && !shown.contains('\u{9b}'), "{shown}");
        assert_eq!(Fault::retry("\u{1b}".into()).text(), "\\u{1b}");
    }
}
