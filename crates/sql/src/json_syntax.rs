//! The syntax of SQL/JSON that sqlparser does not know: the clauses of `JSON_VALUE` and
//! `JSON_EXISTS`, and `IS JSON`. They become calls with texts in place of clauses.

use datafusion_sql::sqlparser::ast::{Expr, Ident, UnaryOperator, Value};
use datafusion_sql::sqlparser::keywords::Keyword;
use datafusion_sql::sqlparser::parser::{Parser, ParserError};
use datafusion_sql::sqlparser::tokenizer::Token;

use crate::calls::{DEFAULT, IS_JSON, function, string};

type Parsed<T> = Result<T, ParserError>;

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
    if parser.peek_token_ref().token != Token::RParen {
        match of_value {
            true => args.extend(value_clauses(parser)?),
            false => args.push(exists_clause(parser)?),
        }
    }
    parser.expect_token(&Token::RParen)?;
    Ok(function(&name, if of_value { VALUE } else { EXISTS }, args))
}

/// `[RETURNING type] [… ON EMPTY] [… ON ERROR]`.
fn value_clauses(parser: &mut Parser) -> Parsed<[Expr; 3]> {
    let returning = match parser.parse_keyword(Keyword::RETURNING) {
        true => parser.parse_data_type()?.to_string(),
        false => "STRING".into(),
    };
    let (mut on_empty, mut on_error) = (None, None);
    while on_error.is_none() && parser.peek_token_ref().token != Token::RParen {
        let text = match word_at(parser, 0).as_deref() {
            Some("NULL") => next(parser, "NULL"),
            Some("ERROR") => next(parser, "ERROR"),
            Some("DEFAULT") => {
                parser.advance_token();
                let found = parser.peek_token();
                match constant(&parser.parse_expr()?) {
                    Some(Some(text)) => format!("{DEFAULT}{text}"),
                    Some(None) => "NULL".into(),
                    None => return parser.expected("a constant after DEFAULT", found),
                }
            }
            _ => {
                return parser.expected(
                    "NULL, ERROR or DEFAULT … ON EMPTY or ON ERROR",
                    parser.peek_token(),
                );
            }
        };
        parser.expect_keyword(Keyword::ON)?;
        match word_at(parser, 0).as_deref() {
            Some("EMPTY") if on_empty.is_none() => on_empty = Some(text),
            Some("ERROR") => on_error = Some(text),
            _ => return parser.expected("EMPTY or ERROR", parser.peek_token()),
        }
        parser.advance_token();
    }
    let text = |on: Option<String>| string(&on.unwrap_or_else(|| "NULL".into()));
    Ok([string(&returning), text(on_empty), text(on_error)])
}

/// `TRUE | FALSE | UNKNOWN | ERROR ON ERROR`.
fn exists_clause(parser: &mut Parser) -> Parsed<Expr> {
    let word =
        word_at(parser, 0).filter(|w| matches!(&**w, "TRUE" | "FALSE" | "UNKNOWN" | "ERROR"));
    let Some(word) = word else {
        return parser.expected("TRUE, FALSE, UNKNOWN or ERROR, and ON ERROR", parser.peek_token());
    };
    parser.advance_token();
    parser.expect_keyword(Keyword::ON)?;
    match word_at(parser, 0).as_deref() {
        Some("ERROR") => parser.advance_token(),
        _ => return parser.expected("ERROR", parser.peek_token()),
    }
    Ok(string(&word))
}

fn next(parser: &mut Parser, word: &str) -> String {
    parser.advance_token();
    word.to_string()
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
            _ => None,
        },
        _ => None,
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
        let place = Ident { span: parser.peek_token_ref().span, ..Ident::new("") };
        (0..self.words).for_each(|_| parser.advance_token());
        let is = function(&place, IS_JSON, vec![of.clone(), string(self.kind)]);
        match self.negated {
            true => Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(is) },
            false => is,
        }
    }
}
