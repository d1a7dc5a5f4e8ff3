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
use crate::intake::table_names;
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
    /// Tables that the stage reads, under their names in marks. Old checkpoints do not tell them.
    pub tables: Vec<String>,
}

impl StageIdentity {
    /// Why the state of a saved stage does not fit. `has_read`: tables that the saved job has read.
    fn difference(&self, saved: &StageIdentity, has_read: &dyn Fn(&str) -> bool) -> Option<String> {
        let is_new = |table: &&String| !saved.tables.is_empty() && !saved.tables.contains(table);
        let ahead = self.tables.iter().filter(is_new).find(|table| has_read(table));
        // Records that the job has not read yet may belong to windows that have fired.
        let reads = |table| format!("it reads table '{table}' now, which others have read before");
        self.identity.difference(&saved.identity).or_else(|| ahead.map(reads))
    }
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
    let Compiled { operations, edges, .. } = Compiled::new(plan, settings)?;
    let tables = table_names(plan.sources.iter().map(|source| source.name.as_str()));
    let tables_of = |stage: usize| {
        let feeds = edges.sources.iter().zip(&tables);
        feeds
            .filter(|(feeds, _)| feeds.stages.contains(&stage))
            .map(|(_, name)| name.clone())
            .collect()
    };
    let identity = |(stage, operation): (usize, crate::stage::Operation)| StageIdentity {
        identity: operation.program.identity(type_name),
        names: operation.names,
        tables: tables_of(stage),
    };
    Ok(operations.into_iter().enumerate().map(identity).collect())
}

/// For each stage of a plan, how it goes on from saved stages of a job that has read some tables.
pub fn fits(
    now: &[StageIdentity],
    saved: &[StageIdentity],
    has_read: &dyn Fn(&str) -> bool,
) -> Vec<Fit> {
    let fit = |stage: &StageIdentity| {
        // The order of saved stages does not matter.
        let named = stage.names.iter().filter_map(|name| {
            saved.iter().enumerate().find(|(_, saved)| saved.names.contains(name))
        });
        let mut changed = None;
        for (number, saved) in named {
            match stage.difference(saved, has_read) {
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
        StageIdentity { names: texts(names), identity, tables: texts(&["t"]) }
    }

    /// A stage of an edited query takes records of a further table.
    #[test]
    fn a_table_that_other_stages_have_read_is_a_change() {
        let saved = [stage(&["a.window"], &[], "none"), stage(&["old.window"], &[], "none")];
        let mut now = saved.clone();
        now[0].tables.push("u".into());
        let reason = "it reads table 'u' now, which others have read before".into();
        let of = |has_read: &dyn Fn(&str) -> bool, saved: &[StageIdentity]| {
            fits(&now, saved, has_read).swap_remove(0)
        };
        assert_eq!(of(&|table| table == "u", &saved), Fit::Changed { saved: 0, reason });
        assert_eq!(of(&|table| table == "t", &saved), Fit::Kept(0), "a table that nobody has read");
        // Earlier checkpoints do not tell the tables of stages.
        let mut unknown = saved.clone();
        unknown[0].tables.clear();
        assert_eq!(of(&|_| true, &unknown), Fit::Kept(0));
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
        let fits = fits(&now, &saved, &|_| true);
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
