//! Statement sets: `EXECUTE STATEMENT SET BEGIN INSERT …; INSERT …; END`, or in older versions of
//! Flink `BEGIN STATEMENT SET; INSERT …; END`.

use crate::syntax::prelude::*;

use datafusion_sql::sqlparser::tokenizer::{TokenWithSpan, Word};

/// An `INSERT INTO` or `INSERT OVERWRITE`.
#[derive(Debug, Clone)]
pub(crate) struct Insert {
    pub(crate) table: Ident,
    pub(crate) overwrites: bool,
    pub(crate) columns: Vec<Ident>,
    pub(crate) query: Box<Query>,
    /// From the first token of the statement to its last.
    pub(crate) span: Option<Span>,
}

/// A statement set, whose statements stand between semicolons.
pub(crate) struct StatementSet {
    pub(crate) inserts: Vec<Insert>,
    /// Whether it is to be explained, not executed.
    pub(crate) explained: bool,
    /// True for EXPLAIN ANALYZE: the set runs, and its results are shown with its plan.
    pub(crate) analyzed: bool,
    /// From the first token of the set to its END.
    pub(crate) span: Option<Span>,
    /// How many parts between semicolons it takes.
    pub(crate) parts: usize,
}

const FORM: &str = "write EXECUTE STATEMENT SET BEGIN INSERT INTO …; INSERT INTO …; END";

impl StatementSet {
    /// How many of `parts` belong to a statement that cannot be parsed: all up to END, if the
    /// statement begins a set with an END.
    pub(crate) fn extent(parts: &[&[TokenWithSpan]]) -> usize {
        let begins = parts.first().is_some_and(|first| {
            let words = words(first);
            words.iter().take(5).any(|t| is(t, Keyword::STATEMENT))
                && words.iter().take(6).any(|t| is(t, Keyword::SET))
        });
        let ends = |part: &&[TokenWithSpan]| {
            let words = words(part);
            words.first().is_some_and(|first| is(first, Keyword::END))
        };
        let end = parts.iter().position(ends).filter(|_| begins);
        end.map_or(1, |end| end + 1)
    }

    /// The set at the beginning of `parts`, a script's tokens between its semicolons; `None` if
    /// there is no set. `insert` parses a statement of the set.
    pub(crate) fn parse(
        parts: &[&[TokenWithSpan]],
        insert: &dyn Fn(&[TokenWithSpan]) -> Result<Insert>,
    ) -> Result<Option<StatementSet>> {
        let Some((first, others)) = parts.split_first() else { return Ok(None) };
        let Some(opening) = Opening::of(first)? else { return Ok(None) };
        let rest = &first[opening.tokens..];
        let mut inserts = Vec::new();
        for (number, part) in std::iter::once(&rest).chain(others).enumerate() {
            let words = words(part);
            let Some(start) = words.first() else { continue };
            if let Some(end) = end(&words)? {
                if inserts.is_empty() {
                    let error = SqlError::syntax("a statement set without an INSERT");
                    return Err(error.at(opening.span).help(FORM));
                }
                let span = match (opening.span, Span::new(end.span)) {
                    (Some(from), Some(to)) => {
                        let (end_line, end_column) = (to.end_line, to.end_column);
                        Some(Span { end_line, end_column, ..from })
                    }
                    _ => None,
                };
                let Opening { explained, analyzed, .. } = opening;
                let parts = number + 1;
                return Ok(Some(StatementSet { inserts, explained, analyzed, span, parts }));
            }
            if !is(start, Keyword::INSERT) {
                return Err(misplaced(start));
            }
            inserts.push(insert(part)?);
        }
        Err(SqlError::syntax("the statement set has no END").at(opening.span).help(FORM))
    }
}

/// The opening words of a set.
struct Opening {
    explained: bool,
    analyzed: bool,
    /// How many tokens it has, blanks and comments among them.
    tokens: usize,
    span: Option<Span>,
}

impl Opening {
    fn of(part: &[TokenWithSpan]) -> Result<Option<Opening>> {
        let blank = |t: &TokenWithSpan| matches!(t.token, Token::Whitespace(_));
        let mut tokens = part.iter().enumerate().filter(|(_, t)| !blank(t)).peekable();
        let Some((_, first)) = tokens.peek().copied() else { return Ok(None) };
        let mut next = |keyword| tokens.next_if(|(_, t)| is(t, keyword));
        let explained = next(Keyword::EXPLAIN).is_some();
        let analyzed = explained && next(Keyword::ANALYZE).is_some();
        if explained && !analyzed && next(Keyword::PLAN).is_some() && next(Keyword::FOR).is_none() {
            return Ok(None);
        }
        // `BEGIN STATEMENT SET;`
        let old = !explained && next(Keyword::BEGIN).is_some();
        let execute = !old && next(Keyword::EXECUTE).is_some();
        let statement = next(Keyword::STATEMENT).is_some();
        let Some((at, set)) = next(Keyword::SET).filter(|_| statement) else {
            let wanted = if statement { "SET" } else { "STATEMENT" };
            return match tokens.peek().filter(|_| statement || old || execute) {
                Some((_, found)) => misspelled(found, wanted).map_or(Ok(None), Err),
                None => Ok(None),
            };
        };
        let opening = |at: usize, last: &TokenWithSpan| {
            let span = Span::new(first.span.union(&last.span));
            Ok(Some(Opening { explained, analyzed, tokens: at + 1, span }))
        };
        let begin = next(Keyword::BEGIN);
        match (old, begin, tokens.next()) {
            (true, None, None) => opening(at, set),
            (true, ..) => {
                let error = SqlError::syntax("expected ; after BEGIN STATEMENT SET");
                Err(error.at(Span::new(set.span)).help(FORM))
            }
            (false, Some((at, begin)), _) if execute || explained => opening(at, begin),
            (false, ..) => {
                let what = match execute || explained {
                    true => "BEGIN after STATEMENT SET",
                    false => "EXECUTE before it",
                };
                let place = Span::new(first.span.union(&set.span));
                Err(SqlError::syntax(format!("expected {what}")).at(place).help(FORM))
            }
        }
    }
}

/// Another word where one of the words of a set's beginning belongs.
fn misspelled(found: &TokenWithSpan, wanted: &str) -> Option<SqlError> {
    let Token::Word(word) = &found.token else { return None };
    closest(&word.value, std::iter::once(wanted))?;
    let error = SqlError::syntax(format!("expected {wanted}, found {found}"));
    Some(error.at(Span::new(found.span)).help(format!("did you mean {wanted}?")))
}

/// A part's tokens without blanks and comments.
fn words(part: &[TokenWithSpan]) -> Vec<&TokenWithSpan> {
    part.iter().filter(|t| !matches!(t.token, Token::Whitespace(_))).collect()
}

fn is(token: &TokenWithSpan, keyword: Keyword) -> bool {
    matches!(&token.token, Token::Word(Word { keyword: k, quote_style: None, .. }) if *k == keyword)
}

/// The END of a set, if that is what a part is.
fn end<'t>(words: &[&'t TokenWithSpan]) -> Result<Option<&'t TokenWithSpan>> {
    let count = |keyword| words.iter().filter(|t| is(t, keyword)).count();
    match words {
        [only] if is(only, Keyword::END) => Ok(Some(only)),
        [first, second, ..] if is(first, Keyword::END) => {
            let error = SqlError::syntax(format!("expected ; after END, found {second}"));
            Err(error.at(Span::new(second.span)))
        }
        // Not that of a CASE.
        [.., last] if is(last, Keyword::END) && count(Keyword::CASE) < count(Keyword::END) => {
            let error = SqlError::syntax("expected ; before the END of a statement set");
            Err(error.at(Span::new(last.span)).help("write INSERT INTO … SELECT …; END"))
        }
        _ => Ok(None),
    }
}

/// A statement that does not belong into a set.
fn misplaced(start: &TokenWithSpan) -> SqlError {
    let selects = [Keyword::SELECT, Keyword::WITH, Keyword::VALUES];
    let select = selects.iter().any(|keyword| is(start, *keyword)) || start.token == Token::LParen;
    let place = Span::new(start.span);
    if select {
        return SqlError::unsupported("a query in a statement set needs an INSERT INTO before it")
            .at(place)
            .help(
                "to see its rows, declare a table that prints them and insert into that:\n\
                 CREATE TABLE shown (…) WITH ('connector' = 'print');\n\
                 or write END; before the query if the set is complete",
            );
    }
    let message = format!("a statement set has INSERT statements only, found {start}");
    SqlError::unsupported(message)
        .at(place)
        .help("put other statements before the set; if the set is complete, write END; before it")
}
