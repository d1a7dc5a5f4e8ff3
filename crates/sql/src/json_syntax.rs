//! The syntax of SQL/JSON that sqlparser does not know: the clauses of `JSON_VALUE` and
//! `JSON_EXISTS`, and `IS JSON`. Until functions are rewritten, its words stand as operators, so
//! that expressions are shown as they were written; see [`json_calls`](crate::json_calls).

use datafusion_sql::sqlparser::ast::{BinaryOperator, Expr, UnaryOperator, Value};
use datafusion_sql::sqlparser::keywords::Keyword;
use datafusion_sql::sqlparser::parser::{Parser, ParserError};
use datafusion_sql::sqlparser::tokenizer::Token;

use crate::calls::function;
use crate::numbers::double_text;

type Parsed<T> = Result<T, ParserError>;

/// Says that a text is JSON.
pub(crate) const IS: &str = "IS JSON";
/// Says that a text is not JSON.
pub(crate) const IS_NOT: &str = "IS NOT JSON";
/// Looks a value up.
pub(crate) const VALUE: &str = "JSON_VALUE";
/// Says whether there is one.
pub(crate) const EXISTS: &str = "JSON_EXISTS";

fn word_at(parser: &Parser, at: usize) -> Option<String> {
    match &parser.peek_nth_token_ref(at).token {
        Token::Word(word) if word.quote_style.is_none() => Some(word.value.to_uppercase()),
        _ => None,
    }
}

/// Whether a call of JSON_VALUE or JSON_EXISTS comes next.
pub(crate) fn calls_json(parser: &Parser) -> bool {
    matches!(&parser.peek_token_ref().token, Token::Word(word) if word.value.len() >= VALUE.len())
        && parser.peek_nth_token_ref(1).token == Token::LParen
        && word_at(parser, 0).is_some_and(|word| word == VALUE || word == EXISTS)
}

/// Reads what [`calls_json`] has found.
pub(crate) fn parse_call(parser: &mut Parser) -> Parsed<Expr> {
    let name = parser.parse_identifier()?;
    parser.expect_token(&Token::LParen)?;
    let mut args = match parser.peek_token_ref().token == Token::RParen {
        true => vec![],
        false => parser.parse_comma_separated(Parser::parse_expr)?,
    };
    let of_value = name.value.eq_ignore_ascii_case(VALUE);
    if parser.peek_token_ref().token != Token::RParen
        && let Some(path) = args.pop()
    {
        args.push(if of_value {
            value_clauses(parser, path)?
        } else {
            exists_clause(parser, path)?
        });
    }
    parser.expect_token(&Token::RParen)?;
    Ok(function(&name, if of_value { VALUE } else { EXISTS }, args))
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
        parser.expect_keyword(Keyword::ON)?;
        let of = match word_at(parser, 0).as_deref() {
            Some("EMPTY") if !on_empty => "EMPTY",
            Some("ERROR") => "ERROR",
            _ => return parser.expected("EMPTY or ERROR", parser.peek_token()),
        };
        parser.advance_token();
        path = after(path, instead, word(of));
        (on_empty, on_error) = (true, of == "ERROR");
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

/// Words after an expression, and what follows them.
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

/// What a word says that stands where an expression does.
pub(crate) fn word_of(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Value(value) => match &value.value {
            Value::Placeholder(word) => Some(word),
            _ => None,
        },
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
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => match &**expr {
            Expr::Value(value) => match &value.value {
                Value::Number(number, _) => Some(Some(format!("-{number}"))),
                _ => None,
            },
            other => double_text(other).map(|number| Some(format!("-{number}"))),
        },
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
    /// It, if it comes next.
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

    /// Reads it, after what it is of.
    pub(crate) fn parse(&self, parser: &mut Parser, of: &Expr) -> Expr {
        (0..self.words).for_each(|_| parser.advance_token());
        after(of.clone(), if self.negated { IS_NOT } else { IS }, word(self.kind))
    }
}
