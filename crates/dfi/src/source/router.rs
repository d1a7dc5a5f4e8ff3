//! Which target a tuple goes to (thesis, section 7.4.2.1).

use millstream_flow::shuffle::Groups;
use millstream_state::{hash_bytes, hash_word};

use crate::options::RouteFunction;

/// The route of a source.
pub(crate) enum Router {
    /// To every target.
    All,
    /// There is one target.
    One,
    /// By the hash of 8 bytes at this offset.
    Word { offset: usize, targets: Groups },
    /// By the hash of bytes at this offset.
    Bytes { offset: usize, bytes: usize, targets: Groups },
    /// By a function.
    By(RouteFunction),
    /// Each push says.
    Explicit,
}

impl Router {
    /// By the hash of an attribute.
    pub(crate) fn key(offset: usize, bytes: usize, targets: usize) -> Router {
        let targets = Groups::repartition(targets);
        match bytes {
            8 => Router::Word { offset, targets },
            _ => Router::Bytes { offset, bytes, targets },
        }
    }

    /// Whether tuples go to every target.
    pub(crate) fn is_to_all(&self) -> bool {
        matches!(self, Router::All)
    }

    /// The index of the outbox of a tuple, which has the schema's length; `None`: each push says.
    #[inline(always)]
    pub(crate) fn outbox(&self, tuple: &[u8], targets: usize) -> Option<usize> {
        match self {
            Router::All | Router::One => Some(0),
            Router::Word { offset, targets } => {
                let word =
                    tuple[*offset..].first_chunk().map_or(0, |word| u64::from_ne_bytes(*word));
                Some(targets.of_hash(hash_word(word)))
            }
            Router::Bytes { offset, bytes, targets } => {
                Some(targets.of_hash(hash_bytes(&tuple[*offset..*offset + *bytes])))
            }
            Router::By(function) => Some(function(tuple, targets)),
            Router::Explicit => None,
        }
    }
}
