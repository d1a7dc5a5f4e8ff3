//! The syntax of SQL/JSON that sqlparser does not know: the clauses of `JSON_VALUE`, `JSON_EXISTS`
//! and `JSON_QUERY`, what is in `JSON_OBJECT` and `JSON_ARRAY`, and `IS JSON`. Until functions are
//! rewritten, its words stand as operators, so that expressions are shown as they were written; see
//! [`json_calls`](crate::stages::json_calls).

use datafusion_sql::sqlparser::ast::{BinaryOperator, Expr, UnaryOperator, Value, ValueWithSpan};
use datafusion_sql::sqlparser::parser::{Parser, ParserError};
use datafusion_sql::{sqlparser::keywords::Keyword, sqlparser::tokenizer::Token};

use crate::syntax::calls::{double_text, function, number_of, value_of};

type Parsed<T> = Result<T, ParserError>;

/// Says that a text is JSON.
pub(crate) const IS: &str = "IS JSON";
/// Says that a text is not JSON.
pub(crate) const IS_NOT: &str = "IS NOT JSON";
/// Looks a value up.
pub(crate) const VALUE: &str = "JSON_VALUE";
/// Says whether there is one.
pub(crate) const EXISTS: &str = "JSON_EXISTS";
/// Looks an object or array up.
pub(crate) const QUERY: &str = "JSON_QUERY";
/// Makes an object.
pub(crate) const OBJECT: &str = "JSON_OBJECT";
/// Makes an array.
pub(crate) const ARRAY: &str = "JSON_ARRAY";
/// The operator between a key and its value.
pub(crate) const MEMBER: &str = "VALUE";

fn word_at(parser: &Parser, at: usize) -> Option<String> {
    match &parser.peek_nth_token_ref(at).token {
        Token::Word(word) if word.quote_style.is_none() => Some(word.value.to_uppercase()),
        _ => None,
    }
}

/// Whether a call with a syntax of its own comes next.
pub(crate) fn calls_json(parser: &Parser) -> bool {
    matches!(&parser.peek_token_ref().token, Token::Word(word) if word.value.len() >= VALUE.len())
        && parser.peek_nth_token_ref(1).token == Token::LParen
        && word_at(parser, 0)
            .is_some_and(|word| [VALUE, EXISTS, QUERY, OBJECT, ARRAY].contains(&word.as_str()))
}

/// Reads what [`calls_json`] has found.
pub(crate) fn parse_call(parser: &mut Parser) -> Parsed<Expr> {
    let name = parser.parse_identifier()?;
    parser.expect_token(&Token::LParen)?;
    let upper = name.value.to_uppercase();
    let args = match upper.as_str() {
        OBJECT => members(parser)?,
        ARRAY => elements(parser)?,
        _ => looked_up(parser, &upper)?,
    };
    parser.expect_token(&Token::RParen)?;
    Ok(function(&name, &upper, args))
}

/// The arguments of what looks into a text.
fn looked_up(parser: &mut Parser, name: &str) -> Parsed<Vec<Expr>> {
    let mut args = match parser.peek_token_ref().token == Token::RParen {
        true => vec![],
        false => parser.parse_comma_separated(Parser::parse_expr)?,
    };
    if parser.peek_token_ref().token != Token::RParen
        && let Some(path) = args.pop()
    {
        args.push(match name {
            VALUE => value_clauses(parser, path)?,
            QUERY => query_clauses(parser, path)?,
            _ => exists_clause(parser, path)?,
        });
    }
    Ok(args)
}

/// `[KEY] 'key' VALUE value, …`, or with a colon.
fn members(parser: &mut Parser) -> Parsed<Vec<Expr>> {
    let mut members = Vec::new();
    while parser.peek_token_ref().token != Token::RParen && null_clause(parser).is_none() {
        let is_key = matches!(parser.peek_nth_token_ref(1).token, Token::SingleQuotedString(_));
        if is_key && word_at(parser, 0).as_deref() == Some("KEY") {
            parser.advance_token();
        }
        let found = parser.peek_token();
        let Token::SingleQuotedString(key) = found.token else {
            return parser.expected("a key in quotes", found);
        };
        parser.advance_token();
        let value = Value::SingleQuotedString(key);
        let key = Expr::Value(ValueWithSpan { value, span: found.span });
        if word_at(parser, 0).as_deref() != Some(MEMBER)
            && parser.peek_token_ref().token != Token::Colon
        {
            return parser.expected("VALUE after a key", parser.peek_token());
        }
        parser.advance_token();
        members.push(after(key, MEMBER, parser.parse_expr()?));
        if !parser.consume_token(&Token::Comma) {
            break;
        }
    }
    with_null_clause(parser, members)
}

fn elements(parser: &mut Parser) -> Parsed<Vec<Expr>> {
    let mut elements = Vec::new();
    while parser.peek_token_ref().token != Token::RParen && null_clause(parser).is_none() {
        elements.push(parser.parse_expr()?);
        if !parser.consume_token(&Token::Comma) {
            break;
        }
    }
    with_null_clause(parser, elements)
}

/// `NULL ON NULL` or `ABSENT ON NULL`, if that comes next.
fn null_clause(parser: &Parser) -> Option<&'static str> {
    let words = [0, 1, 2].map(|at| word_at(parser, at).unwrap_or_default());
    match words.each_ref().map(String::as_str) {
        ["NULL", "ON", "NULL"] => Some("NULL ON"),
        ["ABSENT", "ON", "NULL"] => Some("ABSENT ON"),
        _ => None,
    }
}

/// The clause stands after the last argument.
fn with_null_clause(parser: &mut Parser, mut args: Vec<Expr>) -> Parsed<Vec<Expr>> {
    if let Some(words) = null_clause(parser) {
        (0..3).for_each(|_| parser.advance_token());
        if let Some(last) = args.pop() {
            args.push(after(last, words, word("NULL")));
        }
    }
    Ok(args)
}

/// `[RETURNING type] [WITH … ARRAY WRAPPER] [… ON EMPTY] [… ON ERROR]`, after the path.
fn query_clauses(parser: &mut Parser, mut path: Expr) -> Parsed<Expr> {
    if parser.parse_keyword(Keyword::RETURNING) {
        path = after(path, "RETURNING", word(&parser.parse_data_type()?.to_string()));
    }
    let with = match word_at(parser, 0).as_deref() {
        Some("WITHOUT") => Some("WITHOUT ARRAY"),
        Some("WITH") => match word_at(parser, 1).as_deref() {
            Some("CONDITIONAL") => Some("WITH CONDITIONAL ARRAY"),
            _ => Some("WITH UNCONDITIONAL ARRAY"),
        },
        _ => None,
    };
    if let Some(words) = with {
        parser.advance_token();
        for optional in ["CONDITIONAL", "UNCONDITIONAL", "ARRAY"] {
            if word_at(parser, 0).as_deref() == Some(optional) {
                parser.advance_token();
            }
        }
        match word_at(parser, 0).as_deref() {
            Some("WRAPPER") => parser.advance_token(),
            _ => return parser.expected("WRAPPER", parser.peek_token()),
        }
        path = after(path, words, word("WRAPPER"));
    }
    let (mut on_empty, mut on_error) = (false, false);
    while !on_error && parser.peek_token_ref().token != Token::RParen {
        let words = [0, 1].map(|at| word_at(parser, at).unwrap_or_default());
        let instead = match words.each_ref().map(String::as_str) {
            ["NULL", _] => next(parser, "NULL ON"),
            ["ERROR", _] => next(parser, "ERROR ON"),
            ["EMPTY", "ARRAY"] => next(parser, "EMPTY ARRAY ON"),
            ["EMPTY", "OBJECT"] => next(parser, "EMPTY OBJECT ON"),
            _ => {
                let expected = "NULL, ERROR, EMPTY ARRAY or EMPTY OBJECT, and ON EMPTY or ON ERROR";
                return parser.expected(expected, parser.peek_token());
            }
        };
        if instead.starts_with("EMPTY") {
            parser.advance_token();
        }
        (path, on_error) = on_empty_or_error(parser, path, instead, on_empty)?;
        on_empty = true;
    }
    Ok(path)
}

/// `ON EMPTY`, if it has not been yet, or `ON ERROR`, with what comes instead, after the path; says
/// whether it was the second.
fn on_empty_or_error(
    parser: &mut Parser,
    path: Expr,
    instead: &str,
    on_empty: bool,
) -> Parsed<(Expr, bool)> {
    parser.expect_keyword(Keyword::ON)?;
    let of = match word_at(parser, 0).as_deref() {
        Some("EMPTY") if !on_empty => "EMPTY",
        Some("ERROR") => "ERROR",
        _ => return parser.expected("EMPTY or ERROR", parser.peek_token()),
    };
    parser.advance_token();
    Ok((after(path, instead, word(of)), of == "ERROR"))
}

/// `[RETURNING type] [… ON EMPTY] [… ON ERROR]`, after the path.
fn value_clauses(parser: &mut Parser, mut path: Expr) -> Parsed<Expr> {
    if parser.parse_keyword(Keyword::RETURNING) {
        path = after(path, "RETURNING", word(&parser.parse_data_type()?.to_string()));
    }
    let (mut on_empty, mut on_error) = (false, false);
    while !on_error && parser.peek_token_ref().token != Token::RParen {
        let instead = match word_at(parser, 0).as_deref() {
            Some("NULL") => next(parser, "NULL ON"),
            Some("ERROR") => next(parser, "ERROR ON"),
            Some("DEFAULT") => {
                parser.advance_token();
                let found = parser.peek_token();
                let default = parser.parse_expr()?;
                if constant(&default).is_none() {
                    return parser.expected("a constant after DEFAULT", found);
                }
                path = after(path, "DEFAULT", default);
                "ON"
            }
            _ => {
                let expected = "NULL, ERROR or DEFAULT … ON EMPTY or ON ERROR";
                return parser.expected(expected, parser.peek_token());
            }
        };
        (path, on_error) = on_empty_or_error(parser, path, instead, on_empty)?;
        on_empty = true;
    }
    Ok(path)
}

/// `TRUE | FALSE | UNKNOWN | ERROR ON ERROR`, after the path.
fn exists_clause(parser: &mut Parser, path: Expr) -> Parsed<Expr> {
    let instead = match word_at(parser, 0).as_deref() {
        Some("TRUE") => next(parser, "TRUE ON"),
        Some("FALSE") => next(parser, "FALSE ON"),
        Some("UNKNOWN") => next(parser, "UNKNOWN ON"),
        Some("ERROR") => next(parser, "ERROR ON"),
        _ => {
            let expected = "TRUE, FALSE, UNKNOWN or ERROR, and ON ERROR";
            return parser.expected(expected, parser.peek_token());
        }
    };
    parser.expect_keyword(Keyword::ON)?;
    match word_at(parser, 0).as_deref() {
        Some("ERROR") => parser.advance_token(),
        _ => return parser.expected("ERROR", parser.peek_token()),
    }
    Ok(after(path, instead, word("ERROR")))
}

fn next<'w>(parser: &mut Parser, words: &'w str) -> &'w str {
    parser.advance_token();
    words
}

/// A word that stands where an expression does.
fn word(word: &str) -> Expr {
    Expr::value(Value::Placeholder(word.to_string()))
}

/// An expression followed by words and a second operand.
fn after(left: Expr, words: &str, right: Expr) -> Expr {
    let op = BinaryOperator::Custom(words.to_string());
    Expr::BinaryOp { left: Box::new(left), op, right: Box::new(right) }
}

/// Such words, with what is before and after them.
pub(crate) fn worded(expr: &Expr) -> Option<(&Expr, &str, &Expr)> {
    match expr {
        Expr::BinaryOp { left, op: BinaryOperator::Custom(words), right } => {
            Some((left, words, right))
        }
        _ => None,
    }
}

/// The word in the place of an expression.
pub(crate) fn word_of(expr: &Expr) -> Option<&str> {
    match value_of(expr)? {
        Value::Placeholder(word) => Some(word),
        _ => None,
    }
}

/// The text of a constant; of NULL none.
pub(crate) fn constant(expr: &Expr) -> Option<Option<String>> {
    match expr {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) => Some(Some(text.clone())),
            Value::Number(number, _) => Some(Some(number.to_string())),
            Value::Boolean(yes) => Some(Some(yes.to_string())),
            Value::Null => Some(None),
            _ => None,
        },
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => {
            let number = number_of(expr).or_else(|| double_text(expr))?;
            Some(Some(format!("-{number}")))
        }
        other => double_text(other).map(|number| Some(number.to_string())),
    }
}

/// `IS [NOT] JSON [VALUE | SCALAR | ARRAY | OBJECT]`: its number of words, whether it is negated,
/// and the kind.
pub(crate) struct IsJson {
    words: usize,
    negated: bool,
    kind: &'static str,
}

impl IsJson {
    /// IS JSON with its options, if these words come next.
    pub(crate) fn ahead(parser: &Parser) -> Option<IsJson> {
        let is = |at: usize, keyword: Keyword| match &parser.peek_nth_token_ref(at).token {
            Token::Word(word) => word.keyword == keyword,
            _ => false,
        };
        let negated = is(1, Keyword::NOT);
        let at = 1 + usize::from(negated);
        if !is(0, Keyword::IS) || !is(at, Keyword::JSON) {
            return None;
        }
        let named = word_at(parser, at + 1);
        let kinds = ["VALUE", "SCALAR", "ARRAY", "OBJECT"];
        let kind = kinds.into_iter().find(|kind| named.as_deref() == Some(kind));
        let words = at + 1 + usize::from(kind.is_some());
        Some(IsJson { words, negated, kind: kind.unwrap_or("VALUE") })
    }

    /// Reads the words after the operand `of`.
    pub(crate) fn parse(&self, parser: &mut Parser, of: &Expr) -> Expr {
        (0..self.words).for_each(|_| parser.advance_token());
        after(of.clone(), if self.negated { IS_NOT } else { IS }, word(self.kind))
    }
}
