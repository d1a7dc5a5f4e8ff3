//! `DESCRIBE` and `SHOW`: what the catalog has, as rows.

use arrow::array::RecordBatch;
use datafusion_sql::sqlparser::ast::Ident;
use millstream_contract::declaration::literal;

use super::Planner;
use crate::catalog::{Entry, Origin, TableEntry, WatermarkDecl, is_path};
use crate::create_table::{ColumnKind, CreateTable};
use crate::durations::duration;
use crate::error::{Result, Span, SqlError};
use crate::listed::{Listed, rows_of_text};
use crate::types::sql_type_name;

impl Planner {
    /// The names of all tables and views, in order.
    pub fn table_names(&self) -> Vec<String> {
        self.catalog.names().map(|(name, _)| name.to_string()).collect()
    }

    /// The columns of a table or view, in order; none if there is none of that name.
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

    /// The rows of `SHOW`.
    pub(super) fn listed(&self, what: Listed) -> Result<RecordBatch> {
        let is_view = |entry: &Entry| matches!(entry, Entry::View(_));
        let (title, names) = match what {
            Listed::Tables => ("table name", self.table_names()),
            Listed::Views => {
                let views = self.catalog.names().filter(|(_, entry)| is_view(entry));
                ("view name", views.map(|(name, _)| name.to_string()).collect())
            }
            Listed::Functions => ("function name", self.function_names(false)),
            Listed::UserFunctions => ("function name", self.function_names(true)),
        };
        rows_of_text(&[(title, names.into_iter().map(Some).collect())])
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

/// The statement that declared a table, if one did.
fn declared(entry: &TableEntry) -> Option<&CreateTable> {
    match &entry.origin {
        Origin::Connector(declared) => Some(&declared.create),
        Origin::Table(_) | Origin::Sink(_) => None,
    }
}

/// What makes a column more than a field of a record.
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
