//! From text to statements: splitting at `;`, and parsing what is Millstream's own syntax around
//! sqlparser's queries and expressions.

use std::fmt;
use std::sync::Arc;

use datafusion_sql::sqlparser::ast::{Ident, Query};
use datafusion_sql::sqlparser::keywords::Keyword;
use datafusion_sql::sqlparser::parser::{Parser, ParserError};
use datafusion_sql::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer, Whitespace, Word};
use millstream_contract::settings::closest;

use crate::create_table::{CreateTable, parse_create_table};
use crate::dialect::MillstreamDialect;
use crate::error::{Result, Source, Span, SqlError};
use crate::grammar::{hint, token_error};
use crate::listed::{Listed, parse_show};
use crate::nested_casts::refuse_nested_casts;
use crate::size::{check_lists, check_size};
use crate::stack::on_large_stack;
use crate::statement_set::{Insert, StatementSet};
use crate::user_functions::{CreateFunction, parse_create_function};
use crate::words::{if_not_exists, lower_first, single_name};

/// Levels of brackets, subqueries and calls within each other. The planner's stack is made for it.
const MAX_NESTING: usize = 256;

/// One statement of a script, parsed.
#[derive(Debug, Clone)]
pub struct Statement {
    pub(crate) kind: StatementKind,
    pub(crate) source: Arc<Source>,
    /// From its first token to its last.
    pub(crate) span: Option<Span>,
}

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
    /// Those of a statement set.
    Inserts(Vec<Insert>),
    /// A query or some INSERTs.
    Explain(Box<StatementKind>),
    /// The same, which runs.
    Analyze(Box<StatementKind>),
    /// `DESCRIBE`.
    Describe(Ident),
    Show(Listed),
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

impl Statement {
    /// Whether it yields rows or writes some: whether executing it gives a query to run.
    pub fn is_query(&self) -> bool {
        use StatementKind::{Analyze, Insert, Inserts, Query};
        matches!(self.kind, Query(_) | Insert(_) | Inserts(_) | Analyze(_))
    }

    /// The table or view that it declares.
    pub fn declares(&self) -> Option<&str> {
        match &self.kind {
            StatementKind::CreateTable(create) => Some(&create.name.value),
            StatementKind::CreateView { name, .. } => Some(&name.value),
            _ => None,
        }
    }

    /// Its text, without the semicolon.
    pub fn text(&self) -> String {
        self.span.map_or(String::new(), |span| self.source.slice(span))
    }
}

impl fmt::Display for Statement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text())
    }
}

/// Parses the statements of `text`; `source_name` is for messages.
pub fn parse_script(text: &str, source_name: &str) -> Result<Vec<Statement>> {
    let (statements, mistakes) = parse_to_end(text, source_name, true);
    match mistakes.into_iter().next() {
        Some(Mistake { error, .. }) => Err(error),
        None => Ok(statements),
    }
}

/// A statement that cannot be parsed.
#[derive(Debug)]
pub struct Mistake {
    /// What is wrong with it.
    pub error: SqlError,
    /// The table or view that it would declare.
    pub declares: Option<String>,
}

/// Parses the statements of `text`, also those behind one that cannot be parsed.
pub fn parse_all(text: &str, source_name: &str) -> (Vec<Statement>, Vec<Mistake>) {
    parse_to_end(text, source_name, false)
}

/// `first`: not beyond the first mistake.
fn parse_to_end(text: &str, source_name: &str, first: bool) -> (Vec<Statement>, Vec<Mistake>) {
    // A byte order mark is no part of the text.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let source = Arc::new(Source::new(source_name, text));
    let (mut statements, mut mistakes) = (Vec::new(), Vec::new());
    let parsed = on_large_stack(|| parse(&source, first, &mut statements, &mut mistakes));
    if let Err(error) = parsed {
        mistakes.push(Mistake { error, declares: None });
    }
    for mistake in &mut mistakes {
        mistake.error = mistake.error.clone().in_source(&source);
    }
    (statements, mistakes)
}

/// # Errors
///
/// If the text cannot be split into statements.
fn parse(
    source: &Arc<Source>,
    first: bool,
    statements: &mut Vec<Statement>,
    mistakes: &mut Vec<Mistake>,
) -> Result<()> {
    check_lists(&source.text)?;
    let tokens = Tokenizer::new(&MillstreamDialect::default(), &source.text)
        .tokenize_with_location()
        .map_err(|e| token_error(&e, &source.text))?;
    if let Some(comment) = tokens.iter().find(|t| is_hint(&t.token)) {
        return Err(SqlError::unsupported("hints are not supported")
            .at(Span::new(comment.span))
            .help("leave it out; options of a table stand in WITH (…), settings in SET"));
    }
    let parts: Vec<&[TokenWithSpan]> = tokens.split(|t| t.token == Token::SemiColon).collect();
    let mut at = 0;
    while at < parts.len() {
        match parse_next(&parts[at..]) {
            Ok((next, taken)) => {
                at += taken;
                let next =
                    next.map(|(kind, span)| Statement { kind, source: source.clone(), span });
                statements.extend(next);
            }
            Err(error) => {
                mistakes.push(Mistake { error, declares: declared_name(parts[at]) });
                if first {
                    return Ok(());
                }
                // What stands in a set that is wrong would be wrong outside of it.
                at += StatementSet::extent(&parts[at..]);
            }
        }
    }
    Ok(())
}

/// What a statement says, and where it stands.
type Placed = (StatementKind, Option<Span>);

/// The statement that `parts`, a script's tokens between its semicolons, begin with, if there is
/// any, and how many parts it takes.
fn parse_next(parts: &[&[TokenWithSpan]]) -> Result<(Option<Placed>, usize)> {
    if let Some(set) = StatementSet::parse(parts, &parse_insert)? {
        let inserts = StatementKind::Inserts(set.inserts);
        let kind = match (set.explained, set.analyzed) {
            (_, true) => StatementKind::Analyze(Box::new(inserts)),
            (true, _) => StatementKind::Explain(Box::new(inserts)),
            (false, false) => inserts,
        };
        return Ok((Some((kind, set.span)), set.parts));
    }
    let Some((part, (first, last))) = parts.first().and_then(|part| Some((part, ends(part)?)))
    else {
        return Ok((None, 1));
    };
    Ok((Some((parse_part(part)?, Span::new(first.span.union(&last.span)))), 1))
}

/// The name behind CREATE TABLE or CREATE VIEW, of a statement that may be no more than that.
fn declared_name(tokens: &[TokenWithSpan]) -> Option<String> {
    let mut words = tokens.iter().filter_map(|token| match &token.token {
        Token::Word(word) => Some(word),
        _ => None,
    });
    words.next().filter(|word| word.keyword == Keyword::CREATE)?;
    let before = [
        Keyword::OR,
        Keyword::REPLACE,
        Keyword::TEMPORARY,
        Keyword::TABLE,
        Keyword::VIEW,
        Keyword::IF,
        Keyword::NOT,
        Keyword::EXISTS,
    ];
    let mut words = words.skip_while(|word| before.contains(&word.keyword));
    words.next().map(|word| word.value.clone())
}

fn parse_insert(tokens: &[TokenWithSpan]) -> Result<Insert> {
    match parse_part(tokens)? {
        StatementKind::Insert(insert) => Ok(insert),
        _ => Err(SqlError::internal("an INSERT that is none")),
    }
}

/// The first and the last token that is no blank and no comment.
fn ends(tokens: &[TokenWithSpan]) -> Option<(&TokenWithSpan, &TokenWithSpan)> {
    let mut words = tokens.iter().filter(|t| !matches!(t.token, Token::Whitespace(_)));
    let first = words.next()?;
    Some((first, words.next_back().unwrap_or(first)))
}

/// Parses a statement that stands between semicolons.
fn parse_part(tokens: &[TokenWithSpan]) -> Result<StatementKind> {
    let Some((_, last)) = ends(tokens) else {
        return Err(SqlError::syntax("expected a statement"));
    };
    check_prefixes(tokens)?;
    check_set_operations(tokens)?;
    let dialect = MillstreamDialect::of_statement(tokens.len());
    let read = local_time_zones(tokens);
    refuse_nested_casts(&read)?;
    let mut parser = Parser::new(&dialect)
        .with_recursion_limit(MAX_NESTING)
        .with_tokens_with_locations(read.clone());
    parse_statement(&mut parser)
        .map_err(|e| dialect.stuck_at().map_or(e, |at| stuck(&read, at)))
        .and_then(|kind| check_size(&kind).map(|()| kind))
        .map_err(|e| hint(e, tokens, last))
}

/// Refuses rows of UNION, which stand within each other for all who visit a statement.
fn check_set_operations(tokens: &[TokenWithSpan]) -> Result<()> {
    const SET_OPERATIONS: [Keyword; 4] =
        [Keyword::UNION, Keyword::INTERSECT, Keyword::EXCEPT, Keyword::MINUS];
    let is_one = |t: &&TokenWithSpan| {
        matches!(&t.token, Token::Word(word)
            if word.quote_style.is_none() && SET_OPERATIONS.contains(&word.keyword))
    };
    match tokens.iter().filter(is_one).nth(MAX_NESTING) {
        None => Ok(()),
        Some(one) => Err(SqlError::unsupported(format!(
            "the statement has too many queries: at most {MAX_NESTING} times UNION ALL"
        ))
        .at(Span::new(one.span))
        .help("split it with views: CREATE VIEW name AS SELECT … UNION ALL …")),
    }
}

/// Refuses long rows of NOT, +, - and (, over which the parser would give up without saying why.
fn check_prefixes(tokens: &[TokenWithSpan]) -> Result<()> {
    let mut row = 0;
    for token in tokens {
        row = match &token.token {
            Token::Whitespace(_) => row,
            Token::Word(word) if word.keyword == Keyword::NOT => row + 1,
            Token::Plus | Token::Minus | Token::LParen => row + 1,
            _ => 0,
        };
        if row > MAX_NESTING {
            return Err(too_deep().at(Span::new(token.span)));
        }
    }
    Ok(())
}

fn too_deep() -> SqlError {
    SqlError::unsupported(format!(
        "the statement is nested too deeply: at most {MAX_NESTING} levels"
    ))
    .help("split it with views: CREATE VIEW name AS SELECT …")
}

/// The parser has tried too many ways to read a statement; it got no further than `at`.
fn stuck(tokens: &[TokenWithSpan], at: usize) -> SqlError {
    let place = tokens.get(at).and_then(|t| Span::new(t.span));
    SqlError::syntax("nothing was found that this and what follows could mean").at(place).help(
        "write it with less within brackets, or split it with views: the mistake will be named",
    )
}

/// `/*+ … */`, which would otherwise be a comment.
fn is_hint(token: &Token) -> bool {
    matches!(token, Token::Whitespace(Whitespace::MultiLineComment(text)) if text.starts_with('+'))
}

/// Writes `TIMESTAMP(3) WITH LOCAL TIME ZONE` as `TIMESTAMP_LTZ(3)`, which sqlparser can read.
fn local_time_zones(tokens: &[TokenWithSpan]) -> Vec<TokenWithSpan> {
    const WORDS: [Keyword; 4] = [Keyword::WITH, Keyword::LOCAL, Keyword::TIME, Keyword::ZONE];
    let keyword = |t: &TokenWithSpan| match &t.token {
        Token::Word(word) => word.keyword,
        _ => Keyword::NoKeyword,
    };
    let mut tokens: Vec<TokenWithSpan> =
        tokens.iter().filter(|t| !matches!(t.token, Token::Whitespace(_))).cloned().collect();
    let mut at = 1;
    while at + WORDS.len() <= tokens.len() {
        let local = tokens[at..at + WORDS.len()].iter().map(&keyword).eq(WORDS);
        let head =
            if tokens[at - 1].token == Token::RParen { at.checked_sub(4) } else { Some(at - 1) };
        let head = head.filter(|head| local && keyword(&tokens[*head]) == Keyword::TIMESTAMP);
        if let Some(head) = head {
            tokens[head].token = Token::make_word("TIMESTAMP_LTZ", None);
            tokens.drain(at..at + WORDS.len());
        }
        at += 1;
    }
    tokens
}

impl From<ParserError> for SqlError {
    fn from(error: ParserError) -> SqlError {
        let text = match error {
            ParserError::RecursionLimitExceeded => {
                return too_deep();
            }
            ParserError::ParserError(text) | ParserError::TokenizerError(text) => text,
        };
        let (message, place) = match text.rsplit_once(" at Line: ") {
            Some((message, place)) => (message, place.split_once(", Column: ")),
            None => (text.as_str(), None),
        };
        let place = place.and_then(|(line, column)| {
            let place: (u64, u64) = (line.trim().parse().ok()?, column.trim().parse().ok()?);
            Span::between(place, (place.0, place.1 + 1))
        });
        let message = message.replace("Expected: ", "expected ").replace("found: ", "found ");
        let message = message.replace("found EOF", "found the end of the statement");
        SqlError::syntax(lower_first(&message)).at(place)
    }
}

fn parse_statement(parser: &mut Parser<'_>) -> Result<StatementKind> {
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
            let explained = match parser.peek_keyword(Keyword::INSERT) {
                true => insert(parser)?,
                false => StatementKind::Query(query(parser)?),
            };
            let kind = if analyze { StatementKind::Analyze } else { StatementKind::Explain };
            kind(Box::new(explained))
        }
        Keyword::DESCRIBE | Keyword::DESC => {
            parser.next_token();
            StatementKind::Describe(single_name(parser)?)
        }
        Keyword::SHOW => StatementKind::Show(parse_show(parser)?),
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

const STATEMENTS: &[&str] = &[
    "SELECT",
    "CREATE",
    "INSERT",
    "SET",
    "DROP",
    "EXPLAIN",
    "WITH",
    "EXECUTE STATEMENT SET",
    "DESCRIBE",
    "SHOW",
];

const THERE_ARE: &str = "the statements are CREATE TABLE, CREATE VIEW, DROP, SET, SELECT, INSERT INTO, \
                         EXECUTE STATEMENT SET, EXPLAIN, DESCRIBE and SHOW";

fn unknown_statement(token: &TokenWithSpan) -> SqlError {
    SqlError::syntax(format!("expected a statement, found {token}"))
        .at(Span::new(token.span))
        .help(THERE_ARE)
}

fn refused_statement(word: &Word, token: &TokenWithSpan) -> SqlError {
    let upper = word.value.to_uppercase();
    let (reason, help) = match upper.as_str() {
        "DELETE" | "UPDATE" | "MERGE" | "TRUNCATE" => (
            "rows of a stream cannot be changed after the fact",
            "write a query that leaves them out, for example SELECT … WHERE …",
        ),
        "ALTER" => ("a table cannot be changed", "DROP it and CREATE it again"),
        "USE" | "RESET" | "LOAD" | "UNLOAD" | "ADD" | "REMOVE" | "ANALYZE" | "CALL" | "BEGIN"
        | "STOP" | "COMPILE" | "EXECUTE" => ("it is not part of this dialect yet", THERE_ARE),
        "FROM" => {
            return unknown_statement(token).help("a query begins with SELECT: SELECT * FROM …");
        }
        "END" => ("no statement set has begun", "write EXECUTE STATEMENT SET BEGIN before INSERT"),
        _ => {
            let error = unknown_statement(token);
            return match closest(&upper, STATEMENTS.iter().copied()) {
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

/// `SET 'key' = 'value'` or `SET key.part = value`.
fn set(parser: &mut Parser<'_>) -> Result<StatementKind> {
    parser.expect_keyword(Keyword::SET)?;
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
    let next = parser.peek_token();
    if parser.parse_keyword(Keyword::OVERWRITE) {
        return Err(SqlError::unsupported("INSERT OVERWRITE does not run here")
            .at(Span::new(next.span))
            .help("write INSERT INTO"));
    }
    parser.expect_keyword(Keyword::INTO)?;
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
    Ok(StatementKind::Insert(Insert { table, columns, query, span }))
}
