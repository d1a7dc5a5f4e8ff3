//! Files in the place of tables: `FROM 'events.csv'`, `TABLE 'logs/*.csv'`, `DESCRIBE 'x.csv'`.
//!
//! A name in single quotes is a path or a pattern of paths. What its data declare is written as a
//! `CREATE TABLE`, and that is planned as if it stood in the script.

use std::path::Path;

use datafusion_sql::sqlparser::tokenizer::TokenWithSpan;
use millstream_contract::plan::{EventTime, Plan, Watermark};
use millstream_contract::{declaration::Declaration, inferred::Inferred, table::Connectors};

use crate::names::catalog::{Catalog, FileTables, Origin, TableEntry};
use crate::plan::create::table_entry;
use crate::stages::functions::Context;
use crate::syntax::prelude::*;
use crate::syntax::script::{Statement, parse_script};
use crate::syntax::statement::{StatementKind, inserts};

/// The queries of a statement.
fn queries(kind: &StatementKind) -> Vec<&Query> {
    match kind {
        StatementKind::Query(query) | StatementKind::CreateView { query, .. } => vec![query],
        StatementKind::Explain(explained) | StatementKind::Analyze(explained) => queries(explained),
        kind => inserts(kind).iter().map(|insert| &*insert.query).collect(),
    }
}

/// The files that a statement names as tables, each once, and where.
pub(crate) fn files_of(statement: &Statement) -> Vec<Ident> {
    if let StatementKind::Describe(name) = &statement.kind {
        let is_file = name.quote_style == Some('\'');
        return if is_file { vec![located(name.clone(), statement)] } else { vec![] };
    }
    let mut names: Vec<Ident> = Vec::new();
    for name in queries(&statement.kind).into_iter().flat_map(quoted) {
        if !names.iter().any(|known| known.value == name.value) {
            names.push(located(name, statement));
        }
    }
    names
}

/// The parser has no place for such a name: it is that of the first such text behind a word or a
/// comma that tables stand behind.
fn located(name: Ident, statement: &Statement) -> Ident {
    let within = |token: &TokenWithSpan| {
        let start = (token.span.start.line, token.span.start.column);
        statement.span.is_none_or(|span| {
            let (from, to) = ((span.line, span.column), (span.end_line, span.end_column));
            (from.0.into(), from.1.into()) <= start && start < (to.0.into(), to.1.into())
        })
    };
    let tables_follow = |token: &Token| match token {
        Token::Word(word) => {
            use Keyword::{DESC, DESCRIBE, FROM, JOIN, TABLE};
            matches!(word.keyword, FROM | JOIN | TABLE | DESCRIBE | DESC)
        }
        other => *other == Token::Comma,
    };
    let tokens = statement.source.tokens();
    let found = tokens.iter().zip(tokens.iter().skip(1)).find(|(before, token)| {
        let same = matches!(&token.token, Token::SingleQuotedString(text) if *text == name.value);
        same && tables_follow(&before.token) && within(token)
    });
    match found {
        Some((_, token)) => Ident { span: token.span, ..name },
        None => name,
    }
}

/// The names in single quotes that a query reads from.
fn quoted(query: &Query) -> Vec<Ident> {
    struct Files(Vec<Ident>);
    impl Files {
        fn take(&mut self, name: &Ident) -> ControlFlow<()> {
            if name.quote_style == Some('\'') {
                self.0.push(name.clone());
            }
            Continue(())
        }
    }
    impl Visitor for Files {
        type Break = ();
        fn pre_visit_relation(
            &mut self,
            relation: &datafusion_sql::sqlparser::ast::ObjectName,
        ) -> ControlFlow<()> {
            match &relation.0[..] {
                [part] => part.as_ident().map_or(Continue(()), |name| self.take(name)),
                _ => Continue(()),
            }
        }
        fn pre_visit_expr(&mut self, expr: &SqlExpr) -> ControlFlow<()> {
            match expr {
                // `TABLE 'x'`: a text would be a value.
                SqlExpr::Identifier(name) => self.take(name),
                _ => Continue(()),
            }
        }
    }
    let mut files = Files(Vec::new());
    let _ = query.walk(&mut files);
    files.0
}

/// Declares the tables of files.
pub(crate) struct Declarer<'a> {
    pub(crate) connectors: &'a dyn Connectors,
    pub(crate) base_dir: &'a Path,
    /// Declarations found earlier for this script.
    pub(crate) given: &'a BTreeMap<String, Declaration>,
}

impl Declarer<'_> {
    /// Declaration inferred from a file.
    pub(crate) fn declaration(&self, name: &Ident) -> Result<Declaration> {
        if let Some(given) = self.given.get(&name.value) {
            return Ok(given.clone());
        }
        if name.value.trim().is_empty() {
            let error =
                SqlError::name("a file's name stands between the quotes, and none is there");
            return Err(error.at(Span::new(name.span)).help("write FROM 'data/events.csv'"));
        }
        let found = self.connectors.declaration(&name.value, self.base_dir);
        found.map_err(|error| refused(error).at(Span::new(name.span)))
    }

    /// The tables of the files that a statement names.
    pub(crate) fn tables(
        &self,
        statement: &Statement,
        catalog: &Catalog,
        context: &Context<'_>,
    ) -> Result<FileTables> {
        let mut tables = FileTables::new();
        for name in files_of(statement) {
            if catalog.get(&name.value).is_some() {
                let message = format!("'{0}' in single quotes is a file, and {0} is a table", name);
                let message = message.replace("''", "'");
                return Err(SqlError::name(message).at(Span::new(name.span)).help(format!(
                    "write {} for the table, or './{}' for a file of that name",
                    millstream_contract::declaration::identifier(&name.value),
                    name.value
                )));
            }
            let declaration = self.declaration(&name)?;
            let entry = self.entry(&name, declaration, context, &statement.source)?;
            tables.insert(name.value.clone(), Arc::new(entry));
        }
        Ok(tables)
    }

    /// The table that a declaration declares.
    fn entry(
        &self,
        name: &Ident,
        declaration: Declaration,
        context: &Context<'_>,
        source: &Arc<Source>,
    ) -> Result<TableEntry> {
        let text = declaration.to_sql(&name.value);
        let mut statements = parse_script(&text, &format!("inferred from {}", name.value))?;
        let Some(Statement { kind: StatementKind::CreateTable(create), source: own, .. }) =
            statements.pop()
        else {
            return Err(SqlError::internal("a declaration that is no CREATE TABLE"));
        };
        let mut entry = table_entry(&create, context, self.base_dir, &own)
            .map_err(|error| error.in_source(&own))?;
        entry.name.clone_from(&name.value);
        if let Origin::Connector(declared) = &mut entry.origin {
            declared.name_span = Span::new(name.span);
            declared.source = source.clone();
            declared.defs.clear();
            declared.options.exact = true;
            declared.inferred = Some(Arc::new(Inferred::new(name.value.clone(), declaration)));
        }
        entry.check(self.connectors)?;
        Ok(entry)
    }
}

/// Looks at all event times of undeclared files whose watermark the plan uses, so that none of
/// their records is late. `tables` are the tables of the plan's sources.
pub(crate) fn look_through(
    plan: &mut Plan,
    tables: &[Arc<TableEntry>],
    connectors: &dyn Connectors,
) -> Result<()> {
    for (source, entry) in plan.sources.iter_mut().zip(tables) {
        let Some(EventTime { watermark: Watermark::Delay(us), .. }) = &mut source.event_time else {
            continue;
        };
        let Origin::Connector(declared) = &entry.origin else { continue };
        let Some(inferred) = &declared.inferred else { continue };
        match connectors.time_of_all(&*source.table, &inferred.declaration) {
            Ok(None) => {}
            Ok(Some(time)) => {
                *us = time.delay_us;
                inferred.looked(time);
            }
            // The query comes upon it, too.
            Err(millstream_contract::Error::Data { .. }) => {}
            Err(error) => return Err(declared.refused(error)),
        }
    }
    Ok(())
}

/// A connector's refusal.
fn refused(error: millstream_contract::Error) -> SqlError {
    use millstream_contract::Error::{Data, Io, Option};
    let (message, help) = match error {
        Option { message, help, .. } => (message, help),
        Data { place, message, help } | Io { place, message, help } => {
            (format!("{place}: {message}"), help)
        }
        other => (other.to_string(), String::new()),
    };
    let error = SqlError::new(ErrorKind::Connector, message);
    if help.is_empty() { error } else { error.help(help) }
}
