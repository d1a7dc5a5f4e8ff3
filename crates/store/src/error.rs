//! Errors of stores and checkpoints.

/// Why a store or a checkpoint cannot do what was asked. Every message names the object.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The store has no room.
    #[error(
        "{object}: no space left ({message})\n  help: make room there, or keep fewer checkpoints"
    )]
    Full {
        /// The object's place.
        object: String,
        /// Message of the system.
        message: String,
    },
    /// The store does not answer, or refuses.
    #[error("{object}: {message}\n  help: {help}")]
    Unavailable {
        /// The object's place.
        object: String,
        /// Message of the system.
        message: String,
        /// Advice.
        help: String,
    },
    /// There is no such object.
    #[error(
        "{object}: there is no such object\n  help: if it was deleted by hand, go on from another checkpoint with \
         --restore ID; `millstream checkpoint verify` says which are whole"
    )]
    Missing {
        /// The object's place.
        object: String,
    },
    /// A name that no object can have.
    #[error(
        "'{name}' cannot be the name of an object: {message}\n  help: use letters, digits, '-', '_', \
         '.', '=' and '/'"
    )]
    Name {
        /// The name.
        name: String,
        /// The mistake.
        message: &'static str,
    },
    /// An object with other bytes than were written.
    #[error("{object} is damaged: {message}\n  help: {}", advice(*before))]
    Damaged {
        /// The object's place.
        object: String,
        /// The difference.
        message: String,
        /// The latest earlier checkpoint that is whole.
        before: Option<u64>,
    },
    /// A manifest that another version of the program has written.
    #[error(
        "{object}: {message}\n  help: it was written by version {program} of Millstream; use that \
         version or a later one"
    )]
    Foreign {
        /// The object's place.
        object: String,
        /// The unknown part.
        message: String,
        /// Version of the writing program.
        program: String,
    },
    /// Another coordinator has published the checkpoint or a later one. The caller has lost, must
    /// end, and must commit nothing.
    #[error(
        "{object}: another job has taken this checkpoint or a later one ({by})\n  help: two jobs use the \
         same checkpoints: stop one of them, or give it a directory of its own"
    )]
    Rival {
        /// The manifest's place.
        object: String,
        /// The other coordinator, as far as is known.
        by: String,
    },
    /// A manifest that must not be published.
    #[error("internal error (please report it): {object}: {message}")]
    Internal {
        /// The manifest's place.
        object: String,
        /// The broken promise.
        message: String,
    },
}

impl Error {
    /// Whether the same call may succeed later: a job goes on meanwhile.
    pub fn may_pass(&self) -> bool {
        matches!(self, Error::Full { .. } | Error::Unavailable { .. })
    }
}

/// The error as the job's.
impl From<Error> for millstream_contract::Error {
    fn from(error: Error) -> millstream_contract::Error {
        let text = error.to_string();
        let (head, help) = text.split_once("\n  help: ").unwrap_or((&text, ""));
        let (place, message) = head.split_once(": ").unwrap_or(("checkpoint", head));
        let (place, message) = (place.into(), message.into());
        millstream_contract::Error::Io { place, message, help: help.into() }
    }
}

/// Advice for a damaged checkpoint.
fn advice(before: Option<u64>) -> String {
    match before {
        Some(number) => format!("go on from checkpoint {number}, which is whole"),
        None => "restore it from a copy, or begin anew".into(),
    }
}

/// The result of anything a store does.
pub type Result<T> = std::result::Result<T, Error>;
