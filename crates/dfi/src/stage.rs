//! How far a source has come.

use crate::error::{Error, Result};

/// Stages of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    Open,
    /// The ends of the pairs are sealed.
    Closing,
    Closed,
}

/// The stage of a source, and its first error.
#[derive(Debug)]
pub(crate) struct Standing {
    pub(crate) stage: Stage,
    pub(crate) failed: Option<Error>,
}

impl Standing {
    pub(crate) fn open() -> Standing {
        Standing { stage: Stage::Open, failed: None }
    }

    /// Refuses a call if the source has failed.
    pub(crate) fn check(&self) -> Result<()> {
        self.failed.clone().map_or(Ok(()), Err)
    }

    /// Refuses a call if the source has failed or pushes no more.
    pub(crate) fn check_open(&self) -> Result<()> {
        self.check()?;
        if self.stage == Stage::Open { Ok(()) } else { Err(Error::Closed) }
    }
}
