//! One statement: its kinds, and how it is parsed around sqlparser's queries and expressions.

use datafusion_sql::sqlparser::tokenizer::{TokenWithSpan, Word};
use millstream_contract::declaration::literal;

use crate::syntax::create_table::{CreateTable, parse_create_table};
use crate::syntax::listed::{Listed, Show, parse_show};
use crate::syntax::prelude::*;
use crate::syntax::statement_set::Insert;
use crate::syntax::user_functions::{CreateFunction, parse_create_function};
use crate::syntax::words::{if_not_exists, is_word, single_name, single_name_or};

/// Kinds of statements.
#[derive(Debug, Clone)]
pub(crate) enum StatementKind {
    CreateTable(CreateTable),
    CreateView {
        name: Ident,
        or_replace: bool,
        if_not_exists: bool,
        columns: Vec<Ident>,
        query: Box<Query>,
    },
    CreateFunction(CreateFunction),
    DropFunction {
        name: Ident,
        if_exists: bool,
    },
    Drop {
        view: bool,
        name: Ident,
        if_exists: bool,
    },
    Set {
        key: String,
        value: String,
        key_span: Option<Span>,
        value_span: Option<Span>,
    },
    Query(Box<Query>),
    Insert(Insert),
    /// The INSERT statements of a statement set.
    Inserts(Vec<Insert>),
    /// A query or some INSERTs.
    Explain(Box<StatementKind>),
    /// The same, which runs.
    Analyze(Box<StatementKind>),
    /// `DESCRIBE`, of a table, a view or a file.
    Describe(Ident),
    Show(Show),
    /// `RESET`, of a setting or of all.
    Reset(Option<Ident>),
}

/// The INSERTs that a statement has.
pub(crate) fn inserts(kind: &StatementKind) -> &[Insert] {
    match kind {
        StatementKind::Insert(insert) => std::slice::from_ref(insert),
        StatementKind::Inserts(inserts) => inserts,
        StatementKind::Explain(explained) | StatementKind::Analyze(explained) => inserts(explained),
        _ => &[],
    }
}

/// Parses a statement to its end.
pub(crate) fn parse_statement(parser: &mut Parser<'_>) -> Result<StatementKind> {
    let first = parser.peek_token();
    let word = match &first.token {
        Token::Word(word) => word.clone(),
        Token::LParen => return query(parser).map(StatementKind::Query),
        _ => return Err(unknown_statement(&first)),
    };
    let kind = match word.keyword {
        Keyword::SELECT | Keyword::WITH | Keyword::VALUES => StatementKind::Query(query(parser)?),
        Keyword::CREATE => create(parser)?,
        Keyword::DROP => drop_statement(parser)?,
        Keyword::SET => set(parser)?,
        Keyword::INSERT => insert(parser)?,
        Keyword::EXPLAIN => {
            parser.next_token();
            let analyze = parser.parse_keyword(Keyword::ANALYZE);
            if !analyze && parser.parse_keyword(Keyword::PLAN) {
                parser.expect_keyword(Keyword::FOR)?;
            }
            let next = parser.peek_token();
            if is_word(&next.token, "ANALYSE") {
                let error = SqlError::syntax(format!("expected a query, found {next}"));
                return Err(error.at(Span::new(next.span)).help("did you mean ANALYZE?"));
            }
            let explained = match parser.peek_keyword(Keyword::INSERT) {
                true => insert(parser)?,
                false => StatementKind::Query(query(parser)?),
            };
            let kind = if analyze { StatementKind::Analyze } else { StatementKind::Explain };
            kind(Box::new(explained))
        }
        Keyword::DESCRIBE | Keyword::DESC => {
            parser.next_token();
            StatementKind::Describe(single_name_or(parser, |name| match is_path(name) {
                true => format!("a file stands in single quotes: DESCRIBE {}", literal(name)),
                false => "write the table's name alone".to_string(),
            })?)
        }
        Keyword::SHOW => StatementKind::Show(parse_show(parser)?),
        Keyword::RESET => reset(parser)?,
        _ => return Err(refused_statement(&word, &first)),
    };
    end_of_statement(parser)?;
    Ok(kind)
}

fn end_of_statement(parser: &mut Parser<'_>) -> Result<()> {
    let next = parser.peek_token();
    if next.token == Token::EOF {
        return Ok(());
    }
    Err(SqlError::syntax(format!("expected the end of the statement, found {next}"))
        .at(Span::new(next.span)))
}

fn query(parser: &mut Parser<'_>) -> Result<Box<Query>> {
    Ok(parser.parse_query()?)
}

const STATEMENTS: &str =
    "SELECT,CREATE,INSERT,SET,RESET,DROP,EXPLAIN,WITH,EXECUTE STATEMENT SET,DESCRIBE,SHOW";

const THERE_ARE: &str = "the statements are CREATE TABLE, CREATE VIEW, CREATE FUNCTION, DROP, SET, RESET, \
                         SELECT, INSERT INTO, INSERT OVERWRITE, EXECUTE STATEMENT SET, EXPLAIN, DESCRIBE and SHOW";

fn unknown_statement(token: &TokenWithSpan) -> SqlError {
    SqlError::syntax(format!("expected a statement, found {token}")).at(Span::new(token.span)).help(
        match token.token {
            Token::Backslash => {
                "commands of the shell stand on a line of their own that is typed or piped into \
                 it, and in no file of statements"
            }
            _ => THERE_ARE,
        },
    )
}

fn refused_statement(word: &Word, token: &TokenWithSpan) -> SqlError {
    let upper = word.value.to_uppercase();
    let (reason, help) = match upper.as_str() {
        "DELETE" | "UPDATE" | "MERGE" | "TRUNCATE" => (
            "rows of a stream cannot be changed after the fact",
            "write a query that leaves them out, for example SELECT … WHERE …",
        ),
        "ALTER" => ("a table cannot be changed", "DROP it and CREATE it again"),
        "USE" | "LOAD" | "UNLOAD" | "ADD" | "REMOVE" | "ANALYZE" | "CALL" | "BEGIN" | "STOP"
        | "COMPILE" | "EXECUTE" => ("it is not part of this dialect yet", THERE_ARE),
        "FROM" => {
            return unknown_statement(token).help("a query begins with SELECT: SELECT * FROM …");
        }
        "END" => ("no statement set has begun", "write EXECUTE STATEMENT SET BEGIN before INSERT"),
        _ => {
            let error = unknown_statement(token);
            return match closest(&upper, STATEMENTS.split(',')) {
                Some(statement) => error.help(format!("did you mean {statement}?")),
                None => error,
            };
        }
    };
    SqlError::unsupported(format!("{upper} does not run here: {reason}"))
        .at(Span::new(token.span))
        .help(help)
}

fn create(parser: &mut Parser<'_>) -> Result<StatementKind> {
    parser.expect_keyword(Keyword::CREATE)?;
    let or_replace = parser.parse_keywords(&[Keyword::OR, Keyword::REPLACE]);
    let _ = parser.parse_keyword(Keyword::TEMPORARY);
    let what = parser.peek_token();
    if parser.parse_keyword(Keyword::TABLE) {
        if or_replace {
            return Err(SqlError::unsupported("CREATE OR REPLACE TABLE does not exist")
                .at(Span::new(what.span))
                .help("write DROP TABLE IF EXISTS name; CREATE TABLE name …"));
        }
        return Ok(StatementKind::CreateTable(parse_create_table(parser)?));
    }
    if parser.parse_keyword(Keyword::FUNCTION) {
        return Ok(StatementKind::CreateFunction(parse_create_function(parser, or_replace)?));
    }
    if !parser.parse_keyword(Keyword::VIEW) {
        return Err(SqlError::unsupported(format!("CREATE {what} does not run here"))
            .at(Span::new(what.span))
            .help("CREATE TABLE, CREATE VIEW and CREATE FUNCTION do"));
    }
    let if_not_exists = if_not_exists(parser)?;
    let name = single_name(parser)?;
    let mut columns = Vec::new();
    if parser.consume_token(&Token::LParen) {
        columns = parser.parse_comma_separated(|p| p.parse_identifier())?;
        parser.expect_token(&Token::RParen)?;
    }
    if parser.parse_keyword(Keyword::COMMENT) {
        parser.parse_literal_string()?;
    }
    parser.expect_keyword(Keyword::AS)?;
    let query = query(parser)?;
    Ok(StatementKind::CreateView { name, or_replace, if_not_exists, columns, query })
}

fn drop_statement(parser: &mut Parser<'_>) -> Result<StatementKind> {
    parser.expect_keyword(Keyword::DROP)?;
    let _ = parser.parse_keyword(Keyword::TEMPORARY);
    let what = parser.peek_token();
    if parser.parse_keyword(Keyword::FUNCTION) {
        let if_exists = parser.parse_keywords(&[Keyword::IF, Keyword::EXISTS]);
        return Ok(StatementKind::DropFunction { name: single_name(parser)?, if_exists });
    }
    let view = parser.parse_keyword(Keyword::VIEW);
    if !view && !parser.parse_keyword(Keyword::TABLE) {
        return Err(SqlError::unsupported(format!("DROP {what} does not run here"))
            .at(Span::new(what.span))
            .help("DROP TABLE, DROP VIEW and DROP FUNCTION do"));
    }
    let if_exists = parser.parse_keywords(&[Keyword::IF, Keyword::EXISTS]);
    Ok(StatementKind::Drop { view, name: single_name(parser)?, if_exists })
}

/// `RESET`, `RESET 'key'` or `RESET key.part`.
fn reset(parser: &mut Parser<'_>) -> Result<StatementKind> {
    parser.expect_keyword(Keyword::RESET)?;
    let mut span = parser.peek_token().span;
    let mut key = String::new();
    while parser.peek_token().token != Token::EOF {
        let token = parser.next_token();
        span = span.union(&token.span);
        match &token.token {
            Token::SingleQuotedString(text) => key.push_str(text),
            Token::Word(word) => key.push_str(&word.value),
            other => key.push_str(&other.to_string()),
        }
    }
    Ok(StatementKind::Reset((!key.is_empty()).then(|| Ident::with_span(span, key))))
}

/// `SET 'key' = 'value'` or `SET key.part = value`; alone it lists the settings.
fn set(parser: &mut Parser<'_>) -> Result<StatementKind> {
    parser.expect_keyword(Keyword::SET)?;
    if parser.peek_token().token == Token::EOF {
        return Ok(StatementKind::Show(Show { what: Listed::Settings, like: None }));
    }
    let mut key = String::new();
    let start = parser.peek_token().span;
    let mut key_span = start;
    loop {
        let token = parser.next_token();
        match &token.token {
            Token::Eq => break,
            Token::EOF => {
                return Err(SqlError::syntax("expected = and a value after the setting's name")
                    .help("write SET 'key' = 'value'"));
            }
            Token::SingleQuotedString(text) => key.push_str(text),
            Token::Word(word) => key.push_str(&word.value),
            other => key.push_str(&other.to_string()),
        }
        key_span = start.union(&token.span);
    }
    let mut value = String::new();
    let start = parser.peek_token().span;
    let mut value_span = start;
    loop {
        let token = parser.next_token();
        if token.token != Token::EOF {
            value_span = start.union(&token.span);
        }
        match &token.token {
            Token::EOF => break,
            Token::SingleQuotedString(text) => value.push_str(text),
            Token::Word(word) => {
                let gap = if value.is_empty() { "" } else { " " };
                value.push_str(gap);
                value.push_str(&word.value);
            }
            Token::Number(number, _) => value.push_str(number),
            Token::Minus => value.push('-'),
            Token::Period => value.push('.'),
            _ => {
                return Err(SqlError::syntax(format!("{token} cannot stand in a setting's value"))
                    .at(Span::new(token.span))
                    .help("put quotes around the value: SET 'key' = 'value'"));
            }
        }
    }
    // `pass-through` without quotes is three tokens.
    let value = value.replace("- ", "-");
    let (key_span, value_span) = (Span::new(key_span), Span::new(value_span));
    Ok(StatementKind::Set { key, value, key_span, value_span })
}

fn insert(parser: &mut Parser<'_>) -> Result<StatementKind> {
    let start = parser.peek_token().span;
    parser.expect_keyword(Keyword::INSERT)?;
    let overwrites = parser.parse_keyword(Keyword::OVERWRITE);
    if !overwrites {
        parser.expect_keyword(Keyword::INTO)?;
    }
    let _ = parser.parse_keyword(Keyword::TABLE);
    let table = single_name(parser)?;
    let mut columns = Vec::new();
    let list = parser.peek_token().token == Token::LParen
        && !matches!(&parser.peek_nth_token(1).token, Token::Word(w)
            if matches!(w.keyword, Keyword::SELECT | Keyword::WITH));
    if list {
        parser.expect_token(&Token::LParen)?;
        columns = parser.parse_comma_separated(|p| p.parse_identifier())?;
        parser.expect_token(&Token::RParen)?;
    }
    let query = query(parser)?;
    let span = Span::new(start.union(&parser.get_current_token().span));
    Ok(StatementKind::Insert(Insert { table, overwrites, columns, query, span }))
}

/// Whether a name looks like a file's.
pub(crate) fn is_path(name: &str) -> bool {
    let ending = |ending: &&str| {
        let end = name.len().checked_sub(ending.len()).and_then(|at| name.get(at..));
        end.is_some_and(|end| end.eq_ignore_ascii_case(ending))
    };
    name.contains(['/', '*']) || ENDINGS.iter().any(ending)
}

/// Endings of the names of files.
const ENDINGS: [&str; 11] = [
    ".csv", ".tsv", ".ndjson", ".jsonl", ".json", ".parquet", ".arrow", ".log", ".gz", ".zst",
    ".bz2",
];
