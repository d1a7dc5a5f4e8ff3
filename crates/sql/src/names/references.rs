//! How many tables a query reads once its views and WITH queries are written out. Each is planned
//! as often as it is named, so views of which each names the one before twice would grow
//! exponentially.

use crate::names::catalog::{Catalog, Entry};
use crate::syntax::prelude::*;

/// Tables that a query may read, also once its views are written out.
const TABLES_MAX: usize = 1000;

/// The tables that a query reads, a table that is named twice counted twice.
///
/// # Errors
///
/// If there are more than planning has room for.
pub(crate) fn tables_of(query: &Query, catalog: &Catalog) -> Result<usize> {
    let mut count = Count { catalog, open: vec![TableCount::default()] };
    query
        .walk(&mut count)
        .break_value()
        .map_or(Ok(count.open.pop().map_or(0, |level| level.tables)), Err)
}

struct Count<'a> {
    catalog: &'a Catalog,
    /// The queries that we are in.
    open: Vec<TableCount>,
}

/// A query that we are in.
#[derive(Default)]
struct TableCount {
    tables: usize,
    /// WITH queries of this query by address, with their names.
    with: HashMap<*const Query, String>,
    /// Tables read by each WITH query walked so far, by name.
    named: HashMap<String, usize>,
}

impl Visitor for Count<'_> {
    type Break = SqlError;

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<SqlError> {
        let with = query.with.iter().flat_map(|with| &with.cte_tables);
        let with = with.map(|cte| (&raw const *cte.query, cte.alias.name.value.clone()));
        self.open.push(TableCount { with: with.collect(), ..TableCount::default() });
        Continue(())
    }

    fn post_visit_query(&mut self, query: &Query) -> ControlFlow<SqlError> {
        let tables = self.open.pop().map_or(0, |level| level.tables);
        let Some(around) = self.open.last_mut() else { return Continue(()) };
        match around.with.get(&(&raw const *query)) {
            Some(name) => _ = around.named.insert(name.clone(), tables),
            None => around.tables = around.tables.saturating_add(tables),
        }
        match tables > TABLES_MAX {
            true => Break(too_many().at(Span::new(query.span()))),
            false => Continue(()),
        }
    }

    fn pre_visit_relation(&mut self, relation: &ObjectName) -> ControlFlow<SqlError> {
        let Some(ident) = relation.0.last().and_then(|part| part.as_ident()) else {
            return Continue(());
        };
        let with = self.open.iter().rev().find_map(|level| level.named.get(&ident.value).copied());
        let tables = with.unwrap_or_else(|| match self.catalog.get(&ident.value) {
            Some(Entry::View(view)) => view.tables,
            _ => 1,
        });
        let Some(level) = self.open.last_mut() else { return Continue(()) };
        level.tables = level.tables.saturating_add(tables);
        match level.tables > TABLES_MAX {
            true => Break(too_many().at(Span::new(ident.span))),
            false => Continue(()),
        }
    }
}

fn too_many() -> SqlError {
    SqlError::unsupported(format!(
        "the query reads more than {TABLES_MAX} tables once its views are written out"
    ))
    .help("name each view less often: a view is written out wherever it is named")
}
