//! The syntax of SQL/JSON that sqlparser does not know: the clauses of `JSON_VALUE` and
//! `JSON_EXISTS`, and `IS JSON`. They become calls with texts in place of clauses.

use datafusion_sql::sqlparser::ast::{Expr, Function, Ident, Spanned, UnaryOperator, Value};
use datafusion_sql::sqlparser::keywords::Keyword;
use datafusion_sql::sqlparser::parser::{Parser, ParserError};
use datafusion_sql::sqlparser::tokenizer::Token;

use crate::calls::{function, string};
use crate::error::{Result, Span, SqlError};
use crate::scalars::{DEFAULT, IS_JSON, JsonPath, fits, returned_type};

type Parsed<T> = std::result::Result<T, ParserError>;

const VALUE: &str = "JSON_VALUE";
const EXISTS: &str = "JSON_EXISTS";

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
fn constant(expr: &Expr) -> Option<Option<String>> {
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
        let is = |at: usize, keyword: Keyword| matches!(&parser.peek_nth_token_ref(at).token, Token::Word(w) if w.keyword == keyword);
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

/// Refuses a call of JSON_VALUE or JSON_EXISTS with a wrong path or clause.
pub(crate) fn check(call: &Function, args: &[Expr]) -> Result<()> {
    let name = call.name.to_string().to_uppercase();
    let at = |expr: &Expr| Span::new(expr.span()).or(Span::new(call.name.span()));
    let takes = format!("write for example {name}(x, '$.a.b[0]')");
    let (Some(path), true) =
        (args.get(1), matches!((&*name, args.len()), (_, 2) | (VALUE, 5) | (EXISTS, 3)))
    else {
        let message = format!("{name} takes a text and a path");
        return Err(SqlError::types(message).at(Span::new(call.name.span())).help(takes));
    };
    let Some(Some(text)) = constant(path).filter(|_| !matches!(path, Expr::UnaryOp { .. })) else {
        let message = format!("the path of {name} must be a text in quotes");
        return Err(SqlError::unsupported(message).at(at(path)).help(takes));
    };
    JsonPath::parse(&text).map_err(|wrong| {
        SqlError::types(format!("{text} is no path: {wrong}"))
            .at(at(path))
            .help("write for example '$.a.b[0]', or '$[''a b'']' for other names")
    })?;
    let clause = |at: usize| args.get(at).and_then(constant).flatten().unwrap_or_default();
    if name == VALUE && args.len() == 5 {
        let returning = clause(2);
        let Some(data_type) = returned_type(&returning) else {
            return Err(SqlError::types(format!("JSON_VALUE does not return {returning}"))
                .at(Span::new(call.name.span()))
                .help(format!(
                    "it returns STRING, BOOLEAN, INT, BIGINT or DOUBLE; write for example \
                     CAST(JSON_VALUE(x, '$.a') AS {returning})"
                )));
        };
        for on in [clause(3), clause(4)] {
            if let Some(default) = on.strip_prefix(DEFAULT).filter(|text| !fits(text, &data_type)) {
                return Err(SqlError::types(format!("the default {default} is no {returning}"))
                    .at(Span::new(call.name.span()))
                    .help(format!("write a default that is of type {returning}")));
            }
        }
    }
    Ok(())
}
