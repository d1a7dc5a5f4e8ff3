//! Syntax errors: the parser's errors in our words, with hints, from the tokens around the place,
//! at what was probably meant.

use datafusion_sql::sqlparser::tokenizer::{TokenWithSpan, TokenizerError, Word};

use crate::syntax::prelude::*;
use crate::syntax::words::lower_first;

/// Words that begin a clause of a query.
const CLAUSES: [&str; 9] =
    ["FROM", "JOIN", "WHERE", "GROUP", "HAVING", "LIMIT", "OFFSET", "ORDER", "UNION"];

/// How statements begin; the first word can be read as an alias.
const BEGINNINGS: [(Keyword, Keyword); 7] = [
    (Keyword::INSERT, Keyword::INTO),
    (Keyword::CREATE, Keyword::TABLE),
    (Keyword::CREATE, Keyword::VIEW),
    (Keyword::DROP, Keyword::TABLE),
    (Keyword::DROP, Keyword::VIEW),
    (Keyword::EXPLAIN, Keyword::SELECT),
    (Keyword::EXECUTE, Keyword::STATEMENT),
];

const UNITS: [&str; 6] = ["DAY", "HOUR", "MINUTE", "SECOND", "MONTH", "YEAR"];

/// Foreign operators with their SQL equivalents.
const OPERATORS: [(&str, &str); 4] = [("&&", "AND"), ("!", "NOT"), ("=>", ">="), ("~", "LIKE")];

/// A text that cannot be cut into tokens.
pub(crate) fn token_error(error: &TokenizerError, text: &str) -> SqlError {
    let place = (error.location.line, error.location.column);
    let at = |place: (u64, u64)| Span::between(place, (place.0, place.1 + 1));
    let opened = |what: &str, close: &str| {
        SqlError::syntax(format!("the {what} that opens here is never closed"))
            .help(format!("close it with {close}"))
    };
    if error.message.starts_with("Unterminated string") {
        return opened("string", "'").at(at(place));
    }
    if let Some(delimiter) = error.message.split('\'').nth(1)
        && error.message.starts_with("Expected close delimiter")
    {
        return opened("name", delimiter).at(at(place));
    }
    if error.message.contains("multi-line comment") {
        let before = &text[..text.rfind("/*").unwrap_or(0)];
        let line = before.matches('\n').count() as u64 + 1;
        let column = before.chars().rev().take_while(|c| *c != '\n').count() as u64 + 1;
        return opened("comment", "*/").at(Span::between((line, column), (line, column + 2)));
    }
    SqlError::syntax(lower_first(error.message.trim_end_matches(['.', ' ']))).at(at(place))
}

/// Marks the whole token at an error's place, and says what may have been meant. `tokens` are the
/// statement's; `last` is where it ends.
// tidy: long function: one condition per mistake
pub(crate) fn hint(error: SqlError, tokens: &[TokenWithSpan], last: &TokenWithSpan) -> SqlError {
    let tokens: Vec<&TokenWithSpan> =
        tokens.iter().filter(|t| !matches!(t.token, Token::Whitespace(_))).collect();
    if let Some(better) = unfinished_join(&error, &tokens) {
        return better;
    }
    // Parts of it that the parser does not know do not matter.
    if let Some(pattern) = tokens.iter().find(|t| is_keyword(t, Keyword::MATCH_RECOGNIZE)) {
        return match_recognize().at(Span::new(pattern.span));
    }
    let Some(span) = error.span else { return error.at(Span::new(last.span)) };
    let at = tokens.iter().position(|t| {
        (t.span.start.line, t.span.start.column) == (span.line.into(), span.column.into())
    });
    let Some(mut at) = at else { return error };
    // The parser sometimes names the place after the token that it speaks of.
    let speaks_of = |at: usize| error.message.ends_with(&format!("found {}", tokens[at].token));
    if at > 0 && !speaks_of(at) && speaks_of(at - 1) {
        at -= 1;
    }
    let place = Span::new(tokens[at].span);
    let mut error =
        SqlError { span: place.map(|p| if at_start(p, span) { span.max(p) } else { p }), ..error };
    if error.help.is_some() {
        return error;
    }
    let before = |n: usize| at.checked_sub(n).map(|at| tokens[at]);
    if let Some(better) = misspelled_clause(&error, &tokens, at) {
        return better;
    }
    let found = tokens[at];
    if let (Some(before), Token::Word(word)) = (before(1), &found.token)
        && is_keyword(before, Keyword::UNION)
        && let Some(meant) = closest(&word.value, ["ALL", "DISTINCT"].into_iter())
    {
        error.message = format!("expected {meant} after UNION, found {found}");
        return error.help(format!("did you mean UNION {meant}?"));
    }
    if let Some(better) = unfinished_operator(&error, &tokens, at) {
        return better;
    }
    if error.message.starts_with("no infix parser") {
        error.message = format!("expected an operator, found {found}");
        let meant = OPERATORS.iter().find(|(theirs, _)| *theirs == found.token.to_string());
        return error.maybe_help(meant.map(|(_, ours)| format!("write {ours}")));
    }
    let comma = before(1).is_some_and(|t| t.token == Token::Comma);
    if error.message.starts_with("expected an expression") && comma {
        return error.help("leave out the comma before it");
    }
    if let (Some(Token::SingleQuotedString(_)), Some(interval), Token::Word(unit)) =
        (before(1).map(|t| &t.token), before(2), &found.token)
        && is_keyword(interval, Keyword::INTERVAL)
    {
        let meant = closest(&unit.value, UNITS.into_iter());
        let units = || format!("the units are {}", UNITS.join(", "));
        return error.help(meant.map_or_else(units, |unit| format!("did you mean {unit}?")));
    }
    if let Some(better) = unfinished_call(&error, &tokens, at) {
        return better;
    }
    if error.message == "expected THEN, found ," {
        return error.help("write WHEN a OR b; CASE x WHEN 1, 2 compares a value with several");
    }
    if is_keyword(found, Keyword::PARTITION) && error.message.starts_with("expected )") {
        error.message = "PARTITION BY stands after the name of SESSION's table".into();
        return error.help(
            "write SESSION(TABLE events PARTITION BY k, DESCRIPTOR(ts), INTERVAL '10' SECOND); a \
             query is given a name with CREATE VIEW or WITH",
        );
    }
    let value = matches!(
        found.token,
        Token::Word(Word { keyword: Keyword::NoKeyword, .. })
            | Token::Number(..)
            | Token::SingleQuotedString(_)
    );
    let lists = ["expected )", "expected , or )", "expected NOT NULL, a comma or )"];
    let in_list = lists.iter().any(|l| error.message.starts_with(l))
        || (error.message.starts_with("expected the end") && in_select_list(&tokens[..at]));
    if value && in_list {
        return error.help("is a comma missing before it?");
    }
    error
}

/// A join of several words of which one is missing, misspelled or too much.
fn unfinished_join(error: &SqlError, tokens: &[&TokenWithSpan]) -> Option<SqlError> {
    let wrong = |message: String, at: usize| {
        Some(SqlError { message, span: Span::new(tokens[at].span), ..error.clone() })
    };
    let pair = |is: &dyn Fn(&TokenWithSpan, &TokenWithSpan) -> bool| {
        tokens.windows(2).position(|pair| is(pair[0], pair[1]))
    };
    if error.message.starts_with("expected OUTER, SEMI, ANTI or JOIN after LEFT") {
        const NEXT: [Keyword; 4] = [Keyword::OUTER, Keyword::SEMI, Keyword::ANTI, Keyword::JOIN];
        let at = pair(&|left, next| {
            is_keyword(left, Keyword::LEFT)
                && matches!(next.token, Token::Word(_))
                && !NEXT.iter().any(|keyword| is_keyword(next, *keyword))
        })?;
        let found = tokens[at + 1];
        let name = found.token.to_string().to_uppercase();
        let meant = closest(&name, ["JOIN", "OUTER", "SEMI", "ANTI"].into_iter());
        let error = wrong(format!("expected JOIN after LEFT, found {found}"), at + 1)?;
        return Some(error.maybe_help(meant.map(|meant| format!("did you mean {meant}?"))));
    }
    if error.message.starts_with("expected APPLY, found JOIN") {
        let at = pair(&|outer, join| {
            is_keyword(outer, Keyword::OUTER) && is_keyword(join, Keyword::JOIN)
        })?;
        let error = wrong("OUTER JOIN does not say whose rows are kept".into(), at)?;
        return Some(error.help("write LEFT JOIN, RIGHT JOIN or FULL JOIN"));
    }
    if error.message.starts_with("expected one of UPDATE or SHARE, found SYSTEM") {
        let at = pair(&|before, system| {
            is_keyword(before, Keyword::FOR)
                && system.token.to_string().to_uppercase().starts_with("SYSTEM")
        })?;
        let error =
            wrong("this is not FOR SYSTEM_TIME AS OF behind the name of a table".into(), at)?;
        return Some(error.help(
            "write JOIN t FOR SYSTEM_TIME AS OF l.ts AS r ON …: the alias comes last, and a query is \
             given a name with CREATE VIEW or WITH",
        ));
    }
    None
}

/// An operator of several words of which one is missing or misspelled, and what follows ESCAPE.
fn unfinished_operator(error: &SqlError, tokens: &[&TokenWithSpan], at: usize) -> Option<SqlError> {
    let word = |keyword: Keyword| is_keyword(tokens[at], keyword);
    let missing = |wanted: &str, after: &str| {
        let found = tokens.get(at + 1);
        let place = found.map_or(Span::new(tokens[at].span), |t| Span::new(t.span));
        let found = found.map_or("the end of the statement".into(), |t| t.to_string());
        let message = format!("expected {wanted} after {after}, found {found}");
        SqlError { message, span: place, ..error.clone() }
    };
    let expected = |text: &str| error.message.starts_with(text);
    if word(Keyword::DISTINCT) && expected("expected [NOT] NULL | TRUE") {
        return Some(missing("FROM", "IS [NOT] DISTINCT").help("write a IS DISTINCT FROM b"));
    }
    if word(Keyword::SIMILAR) && expected("expected IN or BETWEEN after NOT") {
        return Some(missing("TO", "SIMILAR").help("write x SIMILAR TO 'a|b'"));
    }
    if expected("expected a concrete value")
        && at.checked_sub(1).is_some_and(|before| is_keyword(tokens[before], Keyword::ESCAPE))
    {
        let error = SqlError { message: "ESCAPE takes one character".into(), ..error.clone() };
        return Some(error.help("write for example ESCAPE '!'"));
    }
    None
}

/// FILTER without WHERE, ROLLUP or CUBE without brackets, PARTITION BY with more than names.
fn unfinished_call(error: &SqlError, tokens: &[&TokenWithSpan], at: usize) -> Option<SqlError> {
    let is = |at: Option<usize>, token: Token| at.is_some_and(|at| tokens[at].token == token);
    let word = |at: Option<usize>, keyword| at.is_some_and(|at| is_keyword(tokens[at], keyword));
    let before = |n: usize| at.checked_sub(n);
    let wrong = |message: String, at: usize| SqlError {
        message,
        span: Span::new(tokens[at].span),
        ..error.clone()
    };
    let filter = (1..at.saturating_sub(1)).rev().find(|at| {
        is_keyword(tokens[*at], Keyword::FILTER)
            && is(Some(at - 1), Token::RParen)
            && is(Some(at + 1), Token::LParen)
    });
    if let Some(condition) = filter.map(|at| at + 2)
        && !is_keyword(tokens[condition], Keyword::WHERE)
    {
        let message = format!("expected WHERE after FILTER (, found {}", tokens[condition]);
        return Some(wrong(message, condition).help("write FILTER (WHERE x > 1)"));
    }
    for keyword in [Keyword::ROLLUP, Keyword::CUBE] {
        if error.message.starts_with("expected (") && word(before(1), keyword) {
            let (name, key) = (tokens[at - 1].to_string().to_uppercase(), tokens[at]);
            return Some(error.clone().help(format!("write {name} ({key})")));
        }
    }
    if is(Some(at), Token::LParen)
        && word(before(2), Keyword::BY)
        && word(before(3), Keyword::PARTITION)
    {
        let message = "PARTITION BY takes columns of the table".to_string();
        let help = "compute the column before, in a view or a subquery";
        return Some(wrong(message, at - 1).help(help));
    }
    None
}

fn at_start(a: Span, b: Span) -> bool {
    (a.line, a.column) == (b.line, b.column)
}

fn is_keyword(token: &TokenWithSpan, keyword: Keyword) -> bool {
    matches!(&token.token, Token::Word(w) if w.keyword == keyword && w.quote_style.is_none())
}

/// Whether the columns of a SELECT are still being listed.
fn in_select_list(tokens: &[&TokenWithSpan]) -> bool {
    let last = tokens
        .iter()
        .rev()
        .find(|t| is_keyword(t, Keyword::SELECT) || is_keyword(t, Keyword::FROM));
    last.is_some_and(|t| is_keyword(t, Keyword::SELECT))
}

/// A query goes on after what looks like its end: a clause's word is misspelled, which then reads
/// as an alias, or incomplete.
fn misspelled_clause(error: &SqlError, tokens: &[&TokenWithSpan], at: usize) -> Option<SqlError> {
    if !error.message.starts_with("expected the end of the statement") {
        return None;
    }
    let begins = |before: &usize| {
        BEGINNINGS.iter().any(|(first, second)| {
            is_keyword(tokens[*before], *first) && is_keyword(tokens[before + 1], *second)
        })
    };
    // After `INSERT INTO table` if the query before it has no FROM.
    let back = [1, 3].iter().filter_map(|back| at.checked_sub(*back));
    if let Some(before) = back.filter(|before| *before > 0).find(begins) {
        let message = format!("; is missing before {}", tokens[before]);
        let span = Span::new(tokens[before].span);
        return Some(SqlError { message, span, ..error.clone() });
    }
    let meant = |token: &TokenWithSpan| {
        let Token::Word(word) = &token.token else { return None };
        let upper = word.value.to_uppercase();
        closest(&upper, CLAUSES.into_iter())
            .filter(|clause| *clause != upper && word.quote_style.is_none())
    };
    let wrong = |message: String, at: usize| {
        Some(SqlError { message, span: Span::new(tokens[at].span), ..error.clone() })
    };
    for at in [at, at.checked_sub(1)?] {
        if let Some(clause) = meant(tokens[at]) {
            let error = wrong(format!("expected {clause}, found {}", tokens[at]), at)?;
            return Some(error.help(format!("did you mean {clause}?")));
        }
    }
    let (found, before) = (tokens[at], tokens[at - 1]);
    let crosses = tokens[..at]
        .windows(2)
        .any(|two| is_keyword(two[0], Keyword::CROSS) && is_keyword(two[1], Keyword::JOIN));
    if is_keyword(found, Keyword::ON) && crosses {
        return Some(error.clone().help("write brackets: a JOIN (b CROSS JOIN c) ON …"));
    }
    if is_keyword(found, Keyword::GROUP) || is_keyword(found, Keyword::ORDER) {
        return wrong(format!("expected BY after {found}"), at);
    }
    if is_keyword(before, Keyword::FROM) && at > 1 && is_keyword(tokens[at - 2], Keyword::AS) {
        return wrong(format!("expected a name after AS, found {before}"), at - 1);
    }
    let statements =
        [Keyword::CREATE, Keyword::SELECT, Keyword::INSERT, Keyword::SET, Keyword::DROP];
    if statements.iter().any(|keyword| is_keyword(found, *keyword)) {
        return Some(error.clone().help("statements are separated by ;"));
    }
    None
}

/// Why there are no patterns of rows.
pub(crate) fn match_recognize() -> SqlError {
    SqlError::unsupported("MATCH_RECOGNIZE does not run here").help(
        "where a pattern is one row behind another, join the table with itself: ON b.k = a.k AND \
         b.ts BETWEEN a.ts AND a.ts + INTERVAL '10' SECOND",
    )
}
