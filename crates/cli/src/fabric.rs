//! `millstream fabric`: the fabrics of this machine, with their abilities.

use millstream_fabric::survey::survey;

use crate::failure::{Failure, fail};
use crate::output::print;

/// Lists providers, devices and their limits. RDMA may be missing; nothing else may.
pub(crate) fn list() -> Result<(), Failure> {
    let found = survey();
    for one in &found {
        print(&one.to_string())?;
    }
    match found.iter().filter(|one| one.is_missing()).count() {
        0 => Ok(()),
        missing => {
            Err(fail(&format!("{missing} of the fabrics that every machine has cannot be used")))
        }
    }
}
