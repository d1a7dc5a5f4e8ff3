//! Names that WITH gives. A WITH within another query may give a name that is in use around it, and
//! hides what has that name there. DataFusion takes each name once, so the inner one is renamed.

use crate::syntax::prelude::*;

use datafusion_sql::sqlparser::ast::{ObjectNamePart, TableAlias};

/// Gives each WITH query a name that is unique among the queries around.
///
/// # Errors
///
/// If one WITH gives a name twice.
pub(crate) fn with_own_names(mut query: Query) -> Result<Query> {
    query.walk_mut(&mut UniqueNames::default()).break_value().map_or(Ok(query), Err)
}

#[derive(Default)]
struct UniqueNames {
    /// The queries that we are in.
    open: Vec<NameLevel>,
    renamed: usize,
}

/// A query that we are in.
#[derive(Default)]
struct NameLevel {
    /// WITH queries of this query by address: the unique name and the written name.
    with: HashMap<*const Query, (String, String)>,
    /// WITH queries walked so far; later text may name them.
    named: HashMap<String, String>,
}

impl UniqueNames {
    /// The own name of what is called so here.
    fn known(&self, name: &str) -> Option<&String> {
        self.open.iter().rev().find_map(|level| level.named.get(name))
    }

    /// The own name of a table that has been renamed, with the name that it was given.
    fn renamed<'n>(&self, name: &'n mut ObjectName) -> Option<(String, &'n mut Ident)> {
        let [ObjectNamePart::Identifier(ident)] = &mut name.0[..] else { return None };
        let own = self.known(&ident.value).filter(|own| **own != ident.value)?;
        Some((own.clone(), ident))
    }
}

impl VisitorMut for UniqueNames {
    type Break = SqlError;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<SqlError> {
        let mut level = NameLevel::default();
        let mut given: Vec<String> = Vec::new();
        for cte in query.with.iter_mut().flat_map(|with| &mut with.cte_tables) {
            let name = &mut cte.alias.name;
            if given.contains(&name.value) {
                let error = SqlError::name(format!("WITH gives the name '{}' twice", name.value));
                let help = "give the second query another name";
                return Break(error.at(Span::new(name.span)).help(help));
            }
            given.push(name.value.clone());
            if self.known(&name.value).is_some() {
                self.renamed += 1;
                name.value = format!("{}#{}", name.value, self.renamed);
            }
            let names = (given[given.len() - 1].clone(), name.value.clone());
            level.with.insert(&raw const *cte.query, names);
        }
        self.open.push(level);
        Continue(())
    }

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<SqlError> {
        self.open.pop();
        if let Some(around) = self.open.last_mut()
            && let Some((given, own)) = around.with.remove(&(&raw const *query))
        {
            around.named.insert(given, own);
        }
        Continue(())
    }

    /// Keeps the written name as an alias, so that qualified columns still fit.
    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<SqlError> {
        if let TableFactor::Table { name, alias: alias @ None, args: None, .. } = factor
            && let Some((_, given)) = self.renamed(name)
        {
            let name = given.clone();
            *alias = Some(TableAlias { explicit: true, name, columns: vec![], at: None });
        }
        Continue(())
    }

    fn pre_visit_relation(&mut self, relation: &mut ObjectName) -> ControlFlow<SqlError> {
        if let Some((own, given)) = self.renamed(relation) {
            given.value = own;
        }
        Continue(())
    }
}
