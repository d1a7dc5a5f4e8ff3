//! From text to statements: splitting at `;`, and what is checked of a statement's tokens before it
//! is parsed.

use datafusion_sql::sqlparser::parser::ParserError;
use datafusion_sql::sqlparser::tokenizer::{TokenWithSpan, Tokenizer, Whitespace};

use crate::syntax::grammar::{hint, token_error};
use crate::syntax::prelude::*;
use crate::syntax::size::{check_lists, check_size};
use crate::syntax::statement::{StatementKind, inserts, parse_statement};
use crate::syntax::statement_set::{Insert, StatementSet};
use crate::syntax::{
    dialect::MillstreamDialect, nested_casts::refuse_nested_casts, stack::on_large_stack,
    tree::closing, words::lower_first,
};

/// Levels of brackets, subqueries and calls within each other. The planner's stack is made for it.
const MAX_NESTING: usize = 256;

/// One statement of a script, parsed.
#[derive(Debug, Clone)]
pub struct Statement {
    pub(crate) kind: StatementKind,
    pub(crate) source: Arc<Source>,
    /// From the first token of the statement to its last.
    pub(crate) span: Option<Span>,
}

impl Statement {
    /// Whether it yields rows or writes some: whether executing it gives a query to run.
    pub fn is_query(&self) -> bool {
        use StatementKind::{Analyze, Insert, Inserts, Query};
        matches!(self.kind, Query(_) | Insert(_) | Inserts(_) | Analyze(_))
    }

    /// The declared table, view or function.
    pub fn declares(&self) -> Option<&str> {
        match &self.kind {
            StatementKind::CreateTable(create) => Some(&create.name.value),
            StatementKind::CreateView { name, .. } => Some(&name.value),
            StatementKind::CreateFunction(create) => Some(&create.name.value),
            _ => None,
        }
    }

    /// Whether it inserts rows into a table of this name.
    pub fn inserts_into(&self, table: &str) -> bool {
        inserts(&self.kind).iter().any(|insert| insert.table.value == table)
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

/// Mistakes of one statement that are told at most.
pub const MISTAKES_MAX: usize = 20;

/// A mistake that keeps a statement from being parsed or executed.
#[derive(Debug)]
pub struct Mistake {
    /// The error with its place and advice.
    pub error: SqlError,
    /// The table, view or function that it would declare.
    pub declares: Option<String>,
    /// Whether there is no statement for it, and no mistake of the same statement before it.
    pub is_first: bool,
}

impl Mistake {
    fn new(error: SqlError) -> Mistake {
        Mistake { error, declares: None, is_first: true }
    }
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
        mistakes.push(Mistake::new(error));
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
    let dialect = MillstreamDialect::default();
    let tokens_of = |text| Tokenizer::new(&dialect, text).tokenize_with_location();
    let tokens = match tokens_of(&source.text) {
        Ok(tokens) => tokens,
        Err(error) => {
            let error = token_error(&error, &source.text);
            let before = error.span.map_or("", |span| source.statements_before(span));
            match tokens_of(before) {
                Ok(tokens) if !first => {
                    mistakes.push(Mistake::new(error));
                    tokens
                }
                _ => return Err(error),
            }
        }
    };
    for comment in tokens.iter().filter(|t| is_hint(&t.token)) {
        let error = SqlError::unsupported("hints do not run here")
            .at(Span::new(comment.span))
            .help("leave it out; options of a table stand in WITH (…), settings in SET");
        mistakes.push(Mistake { is_first: false, ..Mistake::new(error) });
        if first {
            return Ok(());
        }
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
                if first {
                    mistakes.push(Mistake::new(error));
                    return Ok(());
                }
                let declares = declared_name(parts[at]);
                let errors = and_further(error, parts[at]).into_iter().enumerate();
                mistakes.extend(errors.map(|(number, error)| Mistake {
                    error,
                    declares: declares.clone(),
                    is_first: number == 0,
                }));
                // What stands in a set that is wrong would be wrong outside of it.
                at += StatementSet::extent(&parts[at..]);
            }
        }
    }
    Ok(())
}

/// A statement's first mistake, and further mistakes that parsing meets after STRING has replaced
/// each mistaken type. A writer who misspells one type may have misspelled two.
fn and_further(first: SqlError, tokens: &[TokenWithSpan]) -> Vec<SqlError> {
    let mut tokens = tokens.to_vec();
    let mut mistakes = vec![first];
    while mistakes.len() < MISTAKES_MAX
        && let Some(last) = mistakes.last().filter(|last| last.kind == ErrorKind::Unsupported)
        && let Some(wrong) = last.span
    {
        let is_wrong = |t: &TokenWithSpan| Span::new(t.span).is_some_and(|own| wrong.holds(own));
        let Some(at) = tokens.iter().position(is_wrong) else { break };
        tokens[at].token = Token::make_keyword("STRING");
        let mut behind = tokens.split_off(at + 1);
        behind.retain(|token| !is_wrong(token));
        tokens.append(&mut behind);
        match parse_part(&tokens) {
            Err(next) if next.kind == ErrorKind::Unsupported && next.span != last.span => {
                mistakes.push(next);
            }
            _ => break,
        }
    }
    mistakes
}

/// A statement, and its place in the text.
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

/// The name behind CREATE TABLE, VIEW or FUNCTION, of a statement that may be no more than that.
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
        Keyword::FUNCTION,
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
    let mut read = local_time_zones(tokens);
    nulls_after_filters(&mut read);
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

/// Puts RESPECT NULLS and IGNORE NULLS after WITHIN GROUP and FILTER, where sqlparser looks for
/// them; Flink has them before.
fn nulls_after_filters(tokens: &mut [TokenWithSpan]) {
    let is = |t: Option<&TokenWithSpan>, name: &str| {
        matches!(t.map(|t| &t.token), Some(Token::Word(word))
            if word.quote_style.is_none() && word.value.eq_ignore_ascii_case(name))
    };
    for at in 1..tokens.len() {
        let treats = is(tokens.get(at), "RESPECT") || is(tokens.get(at), "IGNORE");
        if !treats || tokens[at - 1].token != Token::RParen || !is(tokens.get(at + 1), "NULLS") {
            continue;
        }
        let mut end = at + 2;
        loop {
            let open = match () {
                () if is(tokens.get(end), "FILTER") => end + 1,
                () if is(tokens.get(end), "WITHIN") && is(tokens.get(end + 1), "GROUP") => end + 2,
                () => break,
            };
            let is_open = tokens.get(open).is_some_and(|t| t.token == Token::LParen);
            let Some(close) = is_open.then(|| closing(tokens, open)).flatten() else { break };
            end = close + 1;
        }
        tokens[at..end].rotate_left(2);
    }
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
