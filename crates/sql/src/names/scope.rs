//! Places of operators in the text of a job, by the names that a user gives: views, subqueries and
//! sinks. A stage is named after its place, so that the name survives edits elsewhere.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use datafusion_sql::sqlparser::ast::{Query, TableFactor, Visitor};

use crate::syntax::walk::Walk;

/// Root of the names in a query whose rows are shown.
pub(crate) const SHOWN: &str = "result";

/// Place of an operator in the text.
#[derive(Debug, Clone, Default)]
pub(crate) struct Scope {
    /// The view around the operator or, outside views, the sink; `None`: not known yet.
    root: Option<String>,
    /// The innermost subquery with a name around the operator, within the root.
    alias: Option<String>,
}

impl Scope {
    /// Whether a name from further outside changes nothing.
    pub(crate) fn is_complete(&self, around: &Around<'_>) -> bool {
        match around {
            Around::Root(_) => self.root.is_some(),
            Around::Alias(_) => self.root.is_some() || self.alias.is_some(),
        }
    }

    /// The same place, with a name around everything so far.
    pub(crate) fn within(&mut self, around: &Around<'_>) {
        match around {
            _ if self.is_complete(around) => {}
            Around::Root(name) => self.root = Some(name.to_string()),
            Around::Alias(name) => self.alias = Some(name.to_string()),
        }
    }

    /// The place of a condition outside the root: the condition has changed the operator, so the
    /// operator is no longer the same for all readers of the root.
    pub(crate) fn leave_root(&mut self) {
        if let Some(root) = self.root.take() {
            self.alias.get_or_insert(root);
        }
    }

    /// Name of an operator of this kind at this place.
    pub(crate) fn name(&self, kind: &str) -> String {
        let root = self.root.as_deref().unwrap_or(SHOWN);
        let names = [Some(root), self.alias.as_deref()];
        names.into_iter().flatten().map(quoted).chain([kind.into()]).collect::<Vec<_>>().join(".")
    }
}

/// A name around a part of a query.
pub(crate) enum Around<'a> {
    /// Of a view or a sink.
    Root(&'a str),
    /// Of a subquery: `WITH name AS (…)`, `(…) AS name`.
    Alias(&'a str),
}

/// A name as a part of a longer name: in double quotes, unless the name is a plain word.
pub(crate) fn quoted(name: &str) -> String {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    match name.starts_with(|c: char| !c.is_numeric()) && name.chars().all(is_word) {
        true => name.into(),
        false => format!("\"{}\"", name.replace('"', "\"\"")),
    }
}

/// The name among several that would be equal: the first stays as it is.
pub(crate) fn numbered(name: &str, number: usize) -> String {
    if number == 1 { name.into() } else { format!("{name}.{number}") }
}

/// Names of the views in a query, recursively, and names that the texts give to subqueries.
#[derive(Debug, Clone, Default)]
pub(crate) struct ScopeNames {
    views: BTreeSet<String>,
    aliases: BTreeSet<String>,
}

impl ScopeNames {
    /// The names in a query, without its views.
    pub(crate) fn of(query: &Query) -> ScopeNames {
        let mut names = ScopeNames::default();
        let _ = query.walk(&mut names);
        names
    }

    /// Adds a view of the query, in which these names are.
    pub(crate) fn add_view(&mut self, name: &str, names: &ScopeNames) {
        self.views.insert(name.into());
        self.views.extend(names.views.iter().cloned());
        self.aliases.extend(names.aliases.iter().cloned());
    }

    /// Meaning of an alias in the plan of the query; `None`: the planner's own. A name that both a
    /// view and a subquery have counts as the subquery's.
    pub(crate) fn around<'a>(&self, alias: &'a str) -> Option<Around<'a>> {
        if alias.starts_with('(') {
            return None;
        }
        Some(match self.views.contains(alias) && !self.aliases.contains(alias) {
            true => Around::Root(alias),
            false => Around::Alias(as_written(alias)),
        })
    }
}

/// The name that the text gives to a subquery of WITH, which may have been made unique by `#` and a
/// number.
fn as_written(alias: &str) -> &str {
    alias.split_once('#').map_or(alias, |(written, _)| written)
}

impl Visitor for ScopeNames {
    type Break = ();

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        let with = query.with.iter().flat_map(|with| &with.cte_tables);
        self.aliases.extend(with.map(|cte| as_written(&cte.alias.name.value).to_string()));
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<()> {
        if let TableFactor::Derived { alias: Some(alias), .. } = factor {
            self.aliases.insert(alias.name.value.clone());
        }
        ControlFlow::Continue(())
    }
}
