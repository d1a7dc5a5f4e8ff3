//! Errors of SQL, of jobs and of scripts.

use millstream_contract::Error;
use millstream_sql::SqlError;

use crate::program::cluster::ProcessFailure;

/// Failure of a statement, a job or a script.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Failure {
    /// The text was refused.
    #[error("{0}")]
    Sql(#[from] SqlError),
    /// A query failed while it ran.
    #[error("{0}")]
    Run(#[from] Error),
    /// A process of a job that has several.
    #[error("{0}")]
    Process(ProcessFailure),
    /// The script or its handles were used in a way that would lose something.
    #[error("{0}")]
    Script(String),
    /// A job was not run, since one before it failed or was stopped.
    #[error("not run: a job before it has failed or was stopped")]
    NotRun,
}
