//! Which stages of a plan go on from which saved state.
//!
//! A stage finds its state by name. Of names that two plans have in common, each may stand for a
//! stage that another stage was before: a name alone is not enough, and the stages' identities must
//! be equal, too. A stage with several names is shared by several sinks. When it is divided later,
//! each of the new stages goes on from the same state.

use arrow::datatypes::DataType;
use serde::{Deserialize, Serialize};

use super::compile::Compiled;
use crate::error::Result;
use crate::plan::Plan;
use crate::settings::Settings;
use millstream_operators::operator::identity::Identity;

/// A stage with state, as a checkpoint knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageIdentity {
    /// [`crate::plan::Stage::names`].
    pub names: Vec<String>,
    /// The meaning of its state.
    pub identity: Identity,
}

/// How a stage goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fit {
    /// With the state of a saved stage, by its number.
    Kept(usize),
    /// Without state: its names are new.
    New,
    /// Not at all: the saved stage of its name has another identity.
    Changed {
        /// The number of this stage.
        saved: usize,
        /// The change, with both values.
        reason: String,
    },
}

/// The stages of a plan that have state, in its order, when it runs with these settings.
/// `type_name` names types as their user does.
pub fn identities(
    plan: &Plan,
    settings: &Settings,
    type_name: &dyn Fn(&DataType) -> String,
) -> Result<Vec<StageIdentity>> {
    let operations = Compiled::new(plan, settings)?.operations.into_iter();
    let identity = |operation: crate::stage::Operation| StageIdentity {
        identity: operation.program.identity(type_name),
        names: operation.names,
    };
    Ok(operations.map(identity).collect())
}

/// For each stage of a plan, how it goes on from saved stages.
pub fn fits(now: &[StageIdentity], saved: &[StageIdentity]) -> Vec<Fit> {
    let fit = |stage: &StageIdentity| {
        // The order of saved stages does not matter.
        let named = stage.names.iter().filter_map(|name| {
            saved.iter().enumerate().find(|(_, saved)| saved.names.contains(name))
        });
        let mut changed = None;
        for (number, saved) in named {
            match stage.identity.difference(&saved.identity) {
                None => return Fit::Kept(number),
                Some(reason) => {
                    changed = changed.or(Some(Fit::Changed { saved: number, reason }));
                }
            }
        }
        changed.unwrap_or(Fit::New)
    };
    now.iter().map(fit).collect()
}

/// Numbers of saved stages without a successor, a changed one included.
pub fn gone(fits: &[Fit], saved: &[StageIdentity]) -> Vec<usize> {
    let is_used = |number: &usize| {
        fits.iter().any(|fit| match fit {
            Fit::Kept(saved) | Fit::Changed { saved, .. } => saved == number,
            Fit::New => false,
        })
    };
    (0..saved.len()).filter(|number| !is_used(number)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stage(names: &[&str], keys: &[&str], window: &str) -> StageIdentity {
        let texts = |texts: &[&str]| texts.iter().map(|text| text.to_string()).collect();
        let identity = Identity {
            operator: "an aggregate".into(),
            keys: texts(keys),
            values: texts(&["COUNT(*) of () as BIGINT"]),
            window: window.into(),
            lateness_us: 0,
            layout: texts(&["Count"]),
        };
        StageIdentity { names: texts(names), identity }
    }

    #[test]
    fn stages_go_on_by_name_and_identity() {
        let minute = "windows of 60000 ms from 0 ms";
        let saved = [
            stage(&["a.window", "b.window"], &["k BIGINT"], minute),
            stage(&["c.window"], &["k BIGINT"], minute),
            stage(&["d.window"], &["k BIGINT"], minute),
            stage(&["e.window"], &["k BIGINT"], minute),
        ];
        let now = [
            // Divided, each with a name of the shared stage, at other places.
            stage(&["b.window"], &["k BIGINT"], minute),
            stage(&["c.window"], &["k BIGINT", "l VARCHAR"], minute),
            stage(&["x.window"], &["k BIGINT"], minute),
            stage(&["a.window"], &["k BIGINT"], minute),
            // The first name has become another stage's.
            stage(&["c.window", "d.window"], &["k BIGINT"], minute),
            stage(&["c.window"], &["k BIGINT"], "windows of 1000 ms from 0 ms"),
        ];
        let fits = fits(&now, &saved);
        let keys = "the keys are (k BIGINT, l VARCHAR) now, and (k BIGINT) in the checkpoint";
        let windows = "it has windows of 1000 ms from 0 ms now, and windows of 60000 ms from 0 ms in \
                       the checkpoint";
        let changed = |saved, reason: &str| Fit::Changed { saved, reason: reason.into() };
        assert_eq!(
            fits,
            [
                Fit::Kept(0),
                changed(1, keys),
                Fit::New,
                Fit::Kept(0),
                Fit::Kept(1),
                changed(1, windows)
            ]
        );
        assert_eq!(gone(&fits, &saved), [2, 3]);
    }
}
