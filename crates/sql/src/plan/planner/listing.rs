//! `DESCRIBE` and `SHOW`: what the catalog has, as rows.

use arrow::compute::{filter_record_batch, ilike};
use millstream_contract::{declaration::literal, settings::SETTINGS};

use super::{Outcome, Planner};
use crate::names::catalog::{Entry, Origin, TableEntry, WatermarkDecl};
use crate::syntax::create_table::{ColumnKind, CreateTable};
use crate::syntax::listed::{Listed, Show, rows_of_text};
use crate::syntax::masked::masked;
use crate::syntax::prelude::*;
use crate::syntax::{durations::duration, statement::is_path};

impl Planner {
    /// The names of all tables and views, in order.
    pub fn table_names(&self) -> Vec<String> {
        self.catalog.names().map(|(name, _)| name.to_string()).collect()
    }

    /// The columns of a table or view, in order; empty for an unknown name.
    pub fn column_names(&self, table: &str) -> Vec<String> {
        match self.catalog.get(table) {
            None => Vec::new(),
            Some(Entry::Table(entry)) => entry.columns.iter().map(|c| c.name.clone()).collect(),
            Some(Entry::View(view)) => view.columns().map(|field| field.name().clone()).collect(),
        }
    }

    /// The names of all functions, in capitals, in order; `declared`: only those of the session.
    pub fn function_names(&self, declared: bool) -> Vec<String> {
        let own = self.catalog.functions().keys().map(|name| name.to_uppercase());
        let mut names: Vec<String> = own.collect();
        if !declared {
            names.extend(self.functions.names().map(str::to_uppercase));
        }
        names.sort();
        names.dedup();
        names
    }

    /// Result of `SHOW`.
    pub(super) fn listed(&self, show: &Show) -> Result<Outcome> {
        if let Listed::Created(name) = &show.what {
            return self.created_by(name).map(Outcome::Text);
        }
        let rows = self.list(show)?;
        let Some(like) = &show.like else { return Ok(Outcome::Listed(rows)) };
        let like = StringArray::new_scalar(like);
        let fits = match show.what {
            Listed::Functions | Listed::UserFunctions => ilike(rows.column(0), &like),
            _ => arrow::compute::like(rows.column(0), &like),
        };
        let rows = fits.and_then(|fits| filter_record_batch(&rows, &fits));
        rows.map(Outcome::Listed).map_err(|e| SqlError::internal(e.to_string()))
    }

    /// The statement that has declared a table or a view.
    fn created_by(&self, name: &Ident) -> Result<String> {
        match (self.catalog.get(&name.value), self.created.get(&name.value)) {
            (Some(_), Some(statement)) => Ok(format!("{};", masked(statement))),
            (Some(_), None) => {
                let message = format!("no statement has declared '{}'", name.value);
                Err(SqlError::name(message)
                    .at(Span::new(name.span))
                    .help("the program has: DESCRIBE lists its columns"))
            }
            (None, _) => Err(self.unknown_to_describe(name)),
        }
    }

    /// The rows of a list, whatever their names are like.
    fn list(&self, show: &Show) -> Result<RecordBatch> {
        let is_view = |entry: &Entry| matches!(entry, Entry::View(_));
        let (title, names) = match &show.what {
            Listed::Settings => return self.settings_list(),
            Listed::Created(_) => ("name", Vec::new()),
            Listed::Tables => ("table name", self.table_names()),
            Listed::Views => {
                let views = self.catalog.names().filter(|(_, entry)| is_view(entry));
                ("view name", views.map(|(name, _)| name.to_string()).collect())
            }
            Listed::Functions => ("function name", self.function_names(false)),
            Listed::UserFunctions => ("function name", self.function_names(true)),
        };
        let functions = matches!(show.what, Listed::Functions | Listed::UserFunctions);
        let examples = names.iter().map(|name| self.called(name)).collect();
        let names = (title, names.into_iter().map(Some).collect());
        match functions && show.like.is_some() {
            true => rows_of_text(&[names, ("example", examples)]),
            false => rows_of_text(&[names]),
        }
    }

    /// A call of a function, with its arguments.
    fn called(&self, name: &str) -> Option<String> {
        match self.catalog.function(name) {
            None => PAGES.iter().find_map(|page| example(page, name)),
            Some(function) => Some(function.call(name)),
        }
    }

    fn settings_list(&self) -> Result<RecordBatch> {
        let mut columns: [Vec<Option<String>>; 4] = Default::default();
        for &(key, form, meaning) in SETTINGS {
            let value = self.values.now.get(key).cloned();
            let row = [Some(key.to_string()), value, Some(form.into()), Some(meaning.into())];
            columns.iter_mut().zip(row).for_each(|(column, value)| column.push(value));
        }
        let [settings, values, forms, meanings] = columns;
        rows_of_text(&[
            ("setting", settings),
            ("value", values),
            ("form", forms),
            ("meaning", meanings),
        ])
    }

    /// The rows of `DESCRIBE`: a column each, of a table, a view or a file.
    pub(super) fn described(&self, name: &Ident) -> Result<RecordBatch> {
        let mut rows: [Vec<Option<String>>; 5] = Default::default();
        let mut add = |row: [Option<String>; 5]| {
            rows.iter_mut().zip(row).for_each(|(column, value)| column.push(value));
        };
        let file = self.files.get(&name.value).cloned().map(Entry::Table);
        match file.as_ref().or_else(|| self.catalog.get(&name.value)) {
            None => return Err(self.unknown_to_describe(name)),
            Some(Entry::Table(entry)) => {
                for (at, column) in entry.columns.iter().enumerate() {
                    let data_type = sql_type_name(&column.data_type);
                    let (extras, watermark) = (extras(entry, &column.name), watermark(entry, at));
                    let nullable = column.nullable.to_string();
                    add([
                        Some(column.name.clone()),
                        Some(data_type),
                        Some(nullable),
                        extras,
                        watermark,
                    ]);
                }
            }
            Some(Entry::View(view)) => {
                for field in view.columns() {
                    let data_type = sql_type_name(field.data_type());
                    let nullable = field.is_nullable().to_string();
                    add([Some(field.name().clone()), Some(data_type), Some(nullable), None, None]);
                }
            }
        }
        let [names, types, nullable, extras, watermarks] = rows;
        rows_of_text(&[
            ("name", names),
            ("type", types),
            ("null", nullable),
            ("extras", extras),
            ("watermark", watermarks),
        ])
    }

    fn unknown_to_describe(&self, name: &Ident) -> SqlError {
        let error = self.catalog.unknown(&name.value).at(Span::new(name.span));
        match is_path(&name.value) {
            true => error
                .help(format!("a file stands in single quotes: DESCRIBE {}", literal(&name.value))),
            false => error,
        }
    }
}

/// The pages on which each function has an example.
const PAGES: [&str; 2] =
    [include_str!("../../../../../docs/functions.md"), include_str!("../../../../../docs/sql.md")];

/// The first call of a function in the examples of a page.
fn example(page: &str, name: &str) -> Option<String> {
    let blocks = page.split("```sql").skip(1).filter_map(|rest| rest.split("```").next());
    for block in blocks {
        for (at, _) in block.match_indices(name) {
            let (before, call) = block.split_at(at);
            let is_apart = !before.ends_with(|c: char| c.is_alphanumeric() || c == '_');
            if !is_apart || !call[name.len()..].starts_with(['(', '[']) {
                continue;
            }
            let (mut depth, mut quoted) = (0, false);
            let end = call.find(|c: char| {
                quoted ^= c == '\'';
                match c {
                    '(' | '[' if !quoted => depth += 1,
                    ')' | ']' if !quoted => depth -= 1,
                    _ => return false,
                }
                depth == 0
            });
            if let Some(end) = end {
                return Some(call[..=end].split_whitespace().collect::<Vec<_>>().join(" "));
            }
        }
    }
    None
}

/// The statement that declared a table, if one did.
fn declared(entry: &TableEntry) -> Option<&CreateTable> {
    match &entry.origin {
        Origin::Connector(declared) => Some(&declared.create),
        Origin::Table(_) | Origin::Sink(_) => None,
    }
}

/// Properties of a column beyond a plain field of a record.
fn extras(entry: &TableEntry, column: &str) -> Option<String> {
    let defined = declared(entry)?.columns.iter().find(|defined| defined.name.value == column)?;
    match &defined.kind {
        ColumnKind::Physical { .. } => None,
        ColumnKind::Computed(expr) => Some(format!("AS {expr}")),
        ColumnKind::Metadata { from, is_virtual, .. } => {
            let from = from.as_ref().map_or(String::new(), |from| format!(" FROM '{}'", from.key));
            let is_virtual = if *is_virtual { " VIRTUAL" } else { "" };
            Some(format!("METADATA{from}{is_virtual}"))
        }
    }
}

/// The watermark, at the column that is the event time.
fn watermark(entry: &TableEntry, column: usize) -> Option<String> {
    let time = entry.event_time.as_ref().filter(|time| time.column == column)?;
    if let Some(watermark) = declared(entry).and_then(|create| create.watermark.as_ref()) {
        return Some(watermark.expr.to_string());
    }
    let name = &entry.columns[column].name;
    match time.watermark {
        WatermarkDecl::Clock => Some("the clock".to_string()),
        WatermarkDecl::Delay(0) => Some(name.clone()),
        WatermarkDecl::Delay(us) => Some(format!("{name} - {}", duration(us))),
        WatermarkDecl::Expr(_) => Some("computed".to_string()),
    }
}
