//! Names of tables of the query around a subquery. `l.k` may be the column `k` of a table `l` of
//! the query around it, or the field `k` of a column `l` of its own tables. DataFusion takes it for
//! the second whenever there is such a column, whether or not that has fields.

use crate::syntax::prelude::*;

use datafusion_sql::sqlparser::ast::{Expr, TableWithJoins};

/// Qualifier before the name of an outer table; no column of the subquery has it. The planner
/// compares as much of a table's name as it knows, so it still finds the table by name.
const AROUND: &str = "$around";

/// A query whose subqueries name tables of the queries around them as such; `None`: none does.
pub(crate) fn with_outer_names(query: &Query) -> Option<Query> {
    let (mut query, mut names) = (query.clone(), OuterNames::default());
    let _ = query.walk_mut(&mut names);
    names.changed.then_some(query)
}

#[derive(Default)]
struct OuterNames {
    /// The names of the tables of each enclosing query; `None` for a query that sees no names of
    /// the queries around it.
    open: Vec<Option<HashSet<String>>>,
    /// Queries that see no names of the queries around them, by address.
    closed: HashSet<*const Query>,
    changed: bool,
}

impl OuterNames {
    /// Whether a name is that of a table of a query around the innermost one alone.
    fn is_around(&self, name: &str) -> bool {
        let mut seen = self.open.iter().rev().map_while(Option::as_ref);
        let own = seen.next().is_some_and(|own| own.contains(name));
        !own && seen.any(|around| around.contains(name))
    }
}

impl VisitorMut for OuterNames {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        if self.closed.contains(&(&raw const *query)) {
            self.open.push(None);
        }
        let with = query.with.iter().flat_map(|with| &with.cte_tables);
        self.closed.extend(with.map(|cte| &raw const *cte.query));
        Continue(())
    }

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        if self.closed.contains(&(&raw const *query)) {
            self.open.pop();
        }
        Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        let mut names = HashSet::new();
        select.from.iter().for_each(|from| add_names(from, &mut names));
        self.open.push(Some(names));
        Continue(())
    }

    fn post_visit_select(&mut self, _: &mut Select) -> ControlFlow<()> {
        self.open.pop();
        Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        if let TableFactor::Derived { subquery, .. } = factor {
            self.closed.insert(&raw const **subquery);
        }
        Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Expr::CompoundIdentifier(path) = expr
            && let [table, _] = &path[..]
            && self.is_around(&table.value)
        {
            path.insert(0, Ident { value: AROUND.into(), ..path[0].clone() });
            self.changed = true;
        }
        Continue(())
    }
}

/// Adds the names by which columns of what stands in FROM are called.
fn add_names(from: &TableWithJoins, names: &mut HashSet<String>) {
    for factor in std::iter::once(&from.relation).chain(from.joins.iter().map(|j| &j.relation)) {
        let alias = match factor {
            TableFactor::Table { name, alias: None, .. } => {
                names.extend(
                    name.0.last().and_then(|part| part.as_ident()).map(|i| i.value.clone()),
                );
                continue;
            }
            TableFactor::NestedJoin { table_with_joins, alias: None } => {
                add_names(table_with_joins, names);
                continue;
            }
            TableFactor::Table { alias, .. }
            | TableFactor::Derived { alias, .. }
            | TableFactor::TableFunction { alias, .. }
            | TableFactor::Function { alias, .. }
            | TableFactor::UNNEST { alias, .. }
            | TableFactor::NestedJoin { alias, .. } => alias,
            _ => continue,
        };
        names.extend(alias.iter().map(|alias| alias.name.value.clone()));
    }
}
