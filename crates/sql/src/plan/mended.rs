//! A statement without what a mistake points at, so that planning it again finds the next one.
//!
//! A part that is left out leaves NULL, or nothing. What is then found may follow from that rather
//! than stand in the text; [`Mended::is_independent`] tells.

mod parts;

use datafusion_sql::sqlparser::ast::DataType;

use crate::names::catalog::LATE;
use crate::plan::create::IDLE_TIMEOUT;
use crate::syntax::create_table::{ColumnDef, CreateTable, OptionDef, WatermarkDef};
use crate::syntax::prelude::*;
use crate::syntax::user_functions::{CreateFunction, PlacedType};
use crate::syntax::{
    script::Statement, stack::on_large_stack, statement::StatementKind, tree::Syntax,
};
use parts::{QueryPart, RemovedPart};

/// A statement whose known mistakes are left out.
#[derive(Debug, Clone)]
pub struct Mended {
    /// The remaining statement.
    pub statement: Statement,
    syntax: Arc<Syntax>,
    /// Where its SELECTs stood.
    selects: Vec<Span>,
    /// Whether types may have changed where no mistake was.
    types_changed: bool,
    /// Whether the remaining statement may group, join or filter differently; of a table, whether
    /// its watermark or keys may differ.
    shape_changed: bool,
    keys_changed: bool,
    /// Whether it is no longer known which columns there are.
    is_open: bool,
    /// Columns of a table's declaration that are left out.
    gone: Vec<String>,
}

impl Mended {
    /// A statement with all its mistakes; of a statement set, each INSERT by itself.
    pub fn of(statement: &Statement) -> Vec<Mended> {
        let syntax = Arc::new(Syntax::of_source(&statement.source));
        let mended = |kind| {
            let mut statement = Statement { kind, ..statement.clone() };
            let selects = selects(query(&mut statement.kind));
            Mended {
                statement,
                syntax: syntax.clone(),
                selects,
                types_changed: false,
                shape_changed: false,
                keys_changed: false,
                is_open: false,
                gone: Vec::new(),
            }
        };
        kinds(&statement.kind).into_iter().map(mended).collect()
    }

    /// The same without the part at the place of `error`; `None` if nothing to check remains.
    pub fn without(mut self, error: &SqlError) -> Option<Mended> {
        let span = error.span?;
        let is_own = |source| Arc::ptr_eq(source, &self.statement.source);
        if !error.source.as_ref().is_none_or(is_own) {
            return None;
        }
        on_large_stack(|| Ok(self.leave_out(span))).ok()?.then_some(self)
    }

    /// Whether there was something to leave out.
    fn leave_out(&mut self, span: Span) -> bool {
        match &mut self.statement.kind {
            StatementKind::CreateTable(create) => {
                let clauses = |create: &CreateTable| {
                    let names = create.primary_key.len() + create.partitioned_by.len();
                    (create.watermark.is_some(), names)
                };
                let before = clauses(create);
                let found = without_clause(create, span, &mut self.gone);
                self.shape_changed |= clauses(create) != before;
                return found;
            }
            StatementKind::CreateFunction(create) => {
                self.types_changed = true;
                return without_type(create, span);
            }
            StatementKind::Insert(insert) => {
                let mut names = std::iter::once(&insert.table).chain(&insert.columns);
                if names.any(|name| Span::new(name.span).is_some_and(|own| own.holds(span))) {
                    self.statement.kind = StatementKind::Query(insert.query.clone());
                    return true;
                }
            }
            _ => {}
        }
        let left_out = query(&mut self.statement.kind)
            .and_then(|query| parts::leave_out(query, span, &self.syntax));
        let Some(RemovedPart { part, is_within, is_open }) = left_out else { return false };
        self.types_changed |= part == QueryPart::Relation || is_within && part != QueryPart::Last;
        self.shape_changed |= !matches!(part, QueryPart::Value | QueryPart::Last);
        self.keys_changed |= part == QueryPart::Key;
        self.is_open |= is_open;
        true
    }

    /// Whether it declares a table of which nothing but options has been left out.
    pub fn is_whole_table(&self) -> bool {
        let is_table = matches!(self.statement.kind, StatementKind::CreateTable(_));
        is_table && self.gone.is_empty() && !self.shape_changed
    }

    /// The keys of its options, if it declares a table.
    pub fn option_keys(&self) -> Vec<String> {
        match &self.statement.kind {
            StatementKind::CreateTable(create) => {
                create.options.iter().map(|option| option.key.clone()).collect()
            }
            _ => Vec::new(),
        }
    }

    /// The same table with these options for its connector, in the place of its own.
    pub fn with_options(mut self, options: &[(&str, &str)]) -> Mended {
        if let StatementKind::CreateTable(create) = &mut self.statement.kind {
            create.options.retain(|option| option.key == LATE || option.key == IDLE_TIMEOUT);
            create.options.extend(options.iter().map(|(key, value)| OptionDef {
                key: key.to_string(),
                value: value.to_string(),
                key_span: None,
                value_span: None,
            }));
        }
        self
    }

    /// Which part of a query a mistake points at.
    fn part(&self, error: &SqlError) -> Option<QueryPart> {
        let (mut statement, span) = (self.statement.clone(), error.span?);
        let left_out = on_large_stack(|| {
            let query = query(&mut statement.kind);
            Ok(query.and_then(|query| parts::leave_out(query, span, &self.syntax)))
        });
        left_out.ok()?.map(|left_out| left_out.part)
    }

    /// The SELECT that a mistake stands in.
    pub fn select_of(&self, error: &SqlError) -> Option<Span> {
        let span = error.span?;
        let start = Span { end_line: span.line, end_column: span.column, ..span };
        let holding = self.selects.iter().filter(|select| select.holds(start));
        holding.max().copied()
    }

    /// Whether a mistake found in what is left stands in the text, too.
    pub fn is_independent(&self, error: &SqlError) -> bool {
        match self.statement.kind {
            StatementKind::CreateTable(_) => {
                let of_gone = |name: &String| error.message.contains(&format!("'{name}'"));
                return !self.gone.iter().any(of_gone) && self.clone().without(error).is_some();
            }
            StatementKind::CreateFunction(_) => {
                return error.kind != ErrorKind::Type
                    || !self.types_changed
                    || self.clone().without(error).is_some();
            }
            _ => {}
        }
        if self.keys_changed && error.message.contains("GROUP BY") {
            return false;
        }
        match error.kind {
            ErrorKind::Name => !self.is_open || is_of_catalog(&error.message),
            ErrorKind::Type => !self.types_changed,
            // Limits of a whole query do not count: left-out parts may have caused the error.
            ErrorKind::Unsupported | ErrorKind::Syntax => {
                !self.shape_changed
                    && matches!(self.part(error), Some(QueryPart::Value | QueryPart::Condition))
            }
            ErrorKind::Connector => self.part(error) == Some(QueryPart::Relation),
            _ => false,
        }
    }
}

/// Whether a message says that there is no such table or function, whatever the columns.
fn is_of_catalog(message: &str) -> bool {
    let no_table = message.starts_with("there is no table ") && !message.ends_with(" here");
    no_table || message.starts_with("there is no function ")
}

/// Parts of a statement that are checked separately.
fn kinds(kind: &StatementKind) -> Vec<StatementKind> {
    match kind {
        StatementKind::Inserts(inserts) => {
            inserts.iter().cloned().map(StatementKind::Insert).collect()
        }
        StatementKind::Explain(inner) | StatementKind::Analyze(inner) => kinds(inner),
        other => vec![other.clone()],
    }
}

/// The query of a statement.
fn query(kind: &mut StatementKind) -> Option<&mut Query> {
    match kind {
        StatementKind::Query(query) | StatementKind::CreateView { query, .. } => Some(query),
        StatementKind::Insert(insert) => Some(&mut insert.query),
        _ => None,
    }
}

/// Where the SELECTs of a query stand.
fn selects(query: Option<&mut Query>) -> Vec<Span> {
    struct Selects(Vec<Span>);
    impl Visitor for Selects {
        type Break = ();
        fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<()> {
            self.0.extend(Span::new(select.span()));
            Continue(())
        }
    }
    let mut selects = Selects(Vec::new());
    let _ = query.map(|query| query.walk(&mut selects));
    selects.0
}

/// Leaves out the column, the watermark or the option that has the mistake.
fn without_clause(create: &mut CreateTable, span: Span, gone: &mut Vec<String>) -> bool {
    let holds = |own: Option<Span>| own.is_some_and(|own| own.holds(span));
    let before = gone.len();
    let wrong = |column: &ColumnDef| holds(Span::new(column.name.span)) || holds(column.span);
    gone.extend(create.columns.iter().filter(|c| wrong(c)).map(|column| column.name.value.clone()));
    create.columns.retain(|column| !wrong(column));
    let options = create.options.len();
    create.options.retain(|option| !holds(option.key_span) && !holds(option.value_span));
    let of_watermark = |w: &WatermarkDef| holds(Span::new(w.column.span)) || holds(w.span);
    let watermark = create.watermark.take_if(|watermark| of_watermark(watermark));
    let mut named = false;
    for names in [&mut create.primary_key, &mut create.partitioned_by] {
        let before = names.len();
        names.retain(|name| !holds(Span::new(name.span)));
        named |= names.len() < before;
    }
    gone.len() > before || create.options.len() < options || watermark.is_some() || named
}

/// Takes a type that there is for the one that has the mistake.
fn without_type(create: &mut CreateFunction, span: Span) -> bool {
    let types = create.parameters.iter_mut().map(|(_, of)| of).chain([&mut create.returns]);
    let mut wrong = types.filter(|of| of.span.is_some_and(|own| own.holds(span))).peekable();
    let found = wrong.peek().is_some();
    wrong.for_each(|of| *of = PlacedType { of: DataType::String(None), span: None });
    found
}
