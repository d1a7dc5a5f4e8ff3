//! Statements that declare tables and views, or take them away.

use datafusion_expr::LogicalPlanBuilder;
use datafusion_sql::sqlparser::ast::Query as SqlQuery;
use millstream_contract::{declaration::literal, wording::counted};

use super::rehearsed::StatementResult;
use super::{Logical, Outcome, Planner, output_names};
use crate::faults::check::check_expr;
use crate::faults::limits::refuse_inner_order;
use crate::names::catalog::{Entry, Origin, TableEntry, ViewEntry};
use crate::plan::create::{check_function, table_entry};
use crate::stages::{
    completed::completed, joins::are_versions, lower::Stage, rewrite::rewrite_expr,
};
use crate::syntax::prelude::*;
use crate::syntax::user_functions::{CreateFunction, UserFunction};
use crate::syntax::{create_table::CreateTable, like::Like, script::Statement, statement::is_path};

impl Planner {
    pub(super) fn create_table(
        &mut self,
        create: &CreateTable,
        statement: &Statement,
    ) -> Result<Outcome> {
        if !self.may_create(&create.name, create.if_not_exists)? {
            return Ok(Outcome::Done);
        }
        let entry = match self.found.take() {
            Some(StatementResult::Table(entry)) => entry,
            _ => {
                let (context, source) = (self.context(), &statement.source);
                let completed = match &create.like {
                    Some(like) => Some(self.completed(create, like)?),
                    None => None,
                };
                let create = completed.as_ref().unwrap_or(create);
                let entry = |create| table_entry(create, &context, &self.base_dir, source);
                let mut entry = match self.stand_ins.table(create) {
                    Some(stand_in) => stand_in_entry(entry(&stand_in)?, create),
                    None => entry(create)?,
                };
                entry.note_written(&*self.connectors);
                Arc::new(entry)
            }
        };
        entry.check(&*self.connectors)?;
        self.found = Some(StatementResult::Table(entry.clone()));
        self.catalog.insert(create.name.value.clone(), Entry::Table(entry));
        Ok(Outcome::Done)
    }

    /// A table declared with LIKE, with its declaration written out.
    fn completed(&self, create: &CreateTable, like: &Like) -> Result<CreateTable> {
        let name = &like.table;
        let refused = |message: String| {
            let error = SqlError::unsupported(message).at(Span::new(name.span));
            error.help("declare the columns: CREATE TABLE name (column TYPE, …) WITH (…)")
        };
        match self.catalog.get(&name.value) {
            None if is_path(&name.value) => {
                let message = format!("LIKE takes a table, and {} is a file", literal(&name.value));
                let init = format!("'millstream init {}' writes its CREATE TABLE", name.value);
                Err(SqlError::name(message).at(Span::new(name.span)).help(init))
            }
            None => Err(self.catalog.unknown(&name.value).at(Span::new(name.span))),
            Some(Entry::View(_)) => {
                Err(refused(format!("'{}' is a view, and LIKE takes a table", name.value)))
            }
            Some(Entry::Table(entry)) => match &entry.origin {
                Origin::Connector(other) => completed(create, like, &other.create, &other.source),
                Origin::Table(_) | Origin::Sink(_) => Err(refused(format!(
                    "LIKE takes a table that CREATE TABLE declared, and '{}' is the program's own",
                    name.value
                ))),
            },
        }
    }

    pub(super) fn create_view(
        &mut self,
        name: &Ident,
        query: &SqlQuery,
        columns: &[Ident],
        statement: &Statement,
    ) -> Result<()> {
        let view = match self.found.take() {
            Some(StatementResult::View(view)) => view,
            _ => Arc::new(self.view(query, columns, statement)?),
        };
        self.found = Some(StatementResult::View(view.clone()));
        self.catalog.insert(name.value.clone(), Entry::View(view));
        Ok(())
    }

    /// Whether there is nothing yet of that name, or a view.
    pub(super) fn may_replace(&self, name: &Ident) -> Result<()> {
        match self.catalog.get(&name.value) {
            Some(Entry::Table(_)) => {
                Err(SqlError::name(format!("'{}' is a table, not a view", name.value))
                    .at(Span::new(name.span))
                    .help("DROP TABLE it first, or use another name"))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn may_create(&self, name: &Ident, if_not_exists: bool) -> Result<bool> {
        match self.catalog.get(&name.value) {
            None => Ok(true),
            Some(_) if if_not_exists => Ok(false),
            Some(entry) => {
                let what = if matches!(entry, Entry::View(_)) { "VIEW" } else { "TABLE" };
                Err(SqlError::name(format!("'{}' exists already", name.value))
                    .at(Span::new(name.span))
                    .help(format!("write DROP {what} {}; first, or use another name", name.value)))
            }
        }
    }

    pub(super) fn drop(&mut self, view: bool, name: &Ident, if_exists: bool) -> Result<Outcome> {
        let (what, other) = if view { ("VIEW", "TABLE") } else { ("TABLE", "VIEW") };
        match self.catalog.get(&name.value) {
            Some(entry) if matches!(entry, Entry::View(_)) == view => {
                self.catalog.remove(&name.value);
                Ok(Outcome::Done)
            }
            Some(_) => {
                Err(SqlError::name(format!("'{}' is no {}", name.value, what.to_lowercase()))
                    .at(Span::new(name.span))
                    .help(format!("write DROP {other} {}", name.value)))
            }
            None if if_exists => Ok(Outcome::Done),
            None => Err(self.catalog.unknown(&name.value).at(Span::new(name.span))),
        }
    }

    pub(super) fn create_function(
        &mut self,
        create: &CreateFunction,
        statement: &Statement,
    ) -> Result<Outcome> {
        let name = &create.name;
        if self.functions.has(&name.value.to_lowercase()) {
            let message = format!("there is a function {} already", name.value);
            return Err(SqlError::name(message).at(Span::new(name.span)).help("use another name"));
        }
        match self.catalog.function(&name.value) {
            Some(_) if create.if_not_exists => return Ok(Outcome::Done),
            Some(_) if !create.or_replace => {
                return Err(SqlError::name(format!("'{}' exists already", name.value))
                    .at(Span::new(name.span))
                    .help("write CREATE OR REPLACE FUNCTION, or use another name"));
            }
            _ => {}
        }
        let fields = create.fields()?;
        let is_aggregate = |name: &str| self.functions.is_aggregate(name);
        let function = UserFunction::new(create, self.catalog.functions(), &is_aggregate)?;
        check_expr(&rewrite_expr(function.body().clone(), &self.functions)?, &self.functions)?;
        let (context, source) = (self.context(), &statement.source);
        check_function(create, &function, fields, &context, source)?;
        self.catalog.set_function(&name.value, Some(function.unplaced()));
        Ok(Outcome::Done)
    }

    pub(super) fn drop_function(&mut self, name: &Ident, if_exists: bool) -> Result<Outcome> {
        if self.catalog.function(&name.value).is_none() && !if_exists {
            let declared = self.catalog.functions().keys().map(String::as_str);
            let error = SqlError::name(format!("no function '{}' is declared", name.value));
            let help = "a script can drop what CREATE FUNCTION has declared";
            return Err(error.at(Span::new(name.span)).meant(&name.value, declared, help));
        }
        self.catalog.set_function(&name.value, None);
        Ok(Outcome::Done)
    }

    fn view(
        &self,
        query: &SqlQuery,
        columns: &[Ident],
        statement: &Statement,
    ) -> Result<ViewEntry> {
        if let Break(error) = refuse_inner_order(query) {
            return Err(error);
        }
        let Logical { plan, analyzed, places, levels, tables, .. } =
            self.logical(query, &statement.source, statement.span)?;
        // What cannot run is refused here, not where the view is used.
        if !are_versions(&analyzed, &places)? {
            Stage::new(&analyzed, &places)?;
        }
        let fields: Vec<_> = plan.schema().columns();
        let typed = |names: &[String]| {
            let fields = analyzed.schema().fields().iter().zip(names);
            fields.map(|(field, name)| Arc::new(Field::clone(field).with_name(name))).collect()
        };
        if columns.is_empty() {
            let (texts, levels) = (places.texts.all(), levels + 1);
            let names = output_names(&plan);
            let typed = typed(&names);
            let plan = match fields.iter().zip(&names).all(|(column, name)| column.name == *name) {
                true => plan,
                false => {
                    let named = fields.into_iter().zip(&names);
                    let named = named.map(|(column, name)| Expr::Column(column).alias(name));
                    LogicalPlanBuilder::from(plan).project(named)?.build()?
                }
            };
            return Ok(ViewEntry {
                plan,
                fields: typed,
                texts,
                levels,
                tables,
                names: places.names,
            });
        }
        if fields.len() != columns.len() {
            let message = format!(
                "the view names {}, its query has {}",
                counted(columns.len() as u64, "column"),
                fields.len()
            );
            return Err(SqlError::types(message)
                .at(columns.first().and_then(|c| Span::new(c.span)))
                .help("name each of them once"));
        }
        let named = fields.into_iter().zip(columns);
        let named = named.map(|(column, name)| Expr::Column(column).alias(&name.value));
        let plan = LogicalPlanBuilder::from(plan).project(named)?.build()?;
        let names: Vec<String> = columns.iter().map(|column| column.value.clone()).collect();
        let (fields, texts) = (typed(&names), places.texts.all());
        Ok(ViewEntry { plan, fields, texts, levels: levels + 1, tables, names: places.names })
    }
}

/// The entry of a table that is read from a stand-in. Its users see the declared table.
fn stand_in_entry(mut entry: TableEntry, create: &CreateTable) -> TableEntry {
    if let Origin::Connector(declared) = &mut entry.origin {
        declared.create = Arc::new(create.clone());
    }
    entry
}
