//! Parsing the types of columns as Flink writes them: those of sqlparser, and on top of them
//! `ROW<a INT, b STRING>`, `ROW(a INT, b STRING)`, `ARRAY<INT>`, `INT ARRAY` and
//! `MAP<STRING, INT>`, nested in each other.

use std::{collections::HashSet, sync::Arc};

use arrow::datatypes::{DataType, Field, Fields};
use datafusion_sql::sqlparser::ast::{DataType as SqlType, Ident};
use datafusion_sql::{
    sqlparser::keywords::Keyword, sqlparser::parser::Parser, sqlparser::tokenizer::Token,
};
use millstream_contract::settings::closest;

use crate::syntax::error::{Result, Span, SqlError};
use crate::syntax::types::arrow_type;

/// Types within each other at most: `ARRAY<ARRAY<INT>>` are two.
const DEPTH_MAX: usize = 16;

/// The field of an array's elements, as Arrow's own builders name it.
pub(crate) const ELEMENT: &str = Field::LIST_FIELD_DEFAULT_NAME;
/// The fields of a map, as the Arrow format names them.
const ENTRIES: &str = "entries";
const KEY: &str = "key";
const VALUE: &str = "value";

/// A parsed type.
#[derive(Debug, Clone)]
pub(crate) enum TypeDef {
    Plain(SqlType, Option<Span>),
    Row(Vec<(Ident, Member)>),
    Array(Box<Member>),
    Map(Box<Member>, Box<Member>),
}

/// A type within another.
#[derive(Debug, Clone)]
pub(crate) struct Member {
    of: TypeDef,
    nullable: bool,
}

impl TypeDef {
    /// Arrow type of this type.
    pub(crate) fn arrow_type(&self) -> Result<DataType> {
        Ok(match self {
            TypeDef::Plain(sql_type, span) => arrow_type(sql_type).map_err(|e| e.at(*span))?,
            TypeDef::Row(members) => {
                let field = |(name, member): &(Ident, Member)| member.field(&name.value);
                DataType::Struct(members.iter().map(field).collect::<Result<Fields>>()?)
            }
            TypeDef::Array(element) => DataType::List(Arc::new(element.field(ELEMENT)?)),
            TypeDef::Map(key, value) => {
                map_type(key.of.arrow_type()?, value.of.arrow_type()?, value.nullable)
            }
        })
    }
}

impl Member {
    fn field(&self, name: &str) -> Result<Field> {
        Ok(Field::new(name, self.of.arrow_type()?, self.nullable))
    }
}

/// A map's type. Keys are never NULL.
pub(crate) fn map_type(key: DataType, value: DataType, nullable: bool) -> DataType {
    let entry = Fields::from(vec![Field::new(KEY, key, false), Field::new(VALUE, value, nullable)]);
    DataType::Map(Arc::new(Field::new(ENTRIES, DataType::Struct(entry), false)), false)
}

/// Parses a column's type. `NOT NULL` after it is left to the caller.
pub(crate) fn parse_type(parser: &mut Parser<'_>) -> Result<TypeDef> {
    let mut types = TypeParser { parser, half_closed: false };
    types.parse(1)
}

/// Parses types within each other.
struct TypeParser<'p, 'd> {
    parser: &'p mut Parser<'d>,
    /// Of `>>`, which is one token, the first half has been taken.
    half_closed: bool,
}

impl TypeParser<'_, '_> {
    fn parse(&mut self, depth: usize) -> Result<TypeDef> {
        let start = self.parser.peek_token();
        let next = self.parser.peek_nth_token(1);
        if depth > DEPTH_MAX {
            return Err(SqlError::types(format!("more than {DEPTH_MAX} types within each other"))
                .at(Span::new(start.span))
                .help("make some of them columns or tables of their own"));
        }
        let word = match (&start.token, &next.token) {
            (Token::Word(word), Token::Lt | Token::LParen) if word.quote_style.is_none() => {
                word.value.to_uppercase()
            }
            _ => String::new(),
        };
        let mut parsed = match word.as_str() {
            "ROW" => self.row(depth)?,
            "ARRAY" => {
                self.parser.next_token();
                let close = self.open()?;
                let element = self.member(depth + 1)?;
                self.close(close)?;
                TypeDef::Array(Box::new(element))
            }
            "MAP" => self.map(depth)?,
            "MULTISET" => return Err(multiset().at(Span::new(start.span))),
            "STRUCT" => {
                return Err(SqlError::types("the type STRUCT is called ROW")
                    .at(Span::new(start.span))
                    .help("write for example ROW<a INT, b STRING>"));
            }
            _ => self.plain()?,
        };
        // `INT ARRAY`, and so on: each makes the depth one more.
        let mut levels = depth;
        loop {
            let next = self.parser.peek_token();
            let Token::Word(word) = &next.token else { break };
            match word.value.to_uppercase().as_str() {
                "ARRAY" if word.quote_style.is_none() && !self.half_closed => {
                    levels += 1;
                    if levels > DEPTH_MAX {
                        let message = format!("more than {DEPTH_MAX} types within each other");
                        return Err(SqlError::types(message).at(Span::new(next.span)));
                    }
                    self.parser.next_token();
                    parsed = TypeDef::Array(Box::new(Member { of: parsed, nullable: true }));
                }
                "MULTISET" if word.quote_style.is_none() => {
                    return Err(multiset().at(Span::new(next.span)));
                }
                _ => break,
            }
        }
        Ok(parsed)
    }

    /// A type of sqlparser's.
    fn plain(&mut self) -> Result<TypeDef> {
        let from = self.parser.peek_token();
        if let Token::Word(word) = &from.token
            && word.quote_style.is_none()
            && let Some(help) = without_parts(&word.value)
        {
            let word = word.value.to_uppercase();
            return Err(SqlError::types(format!("{word} does not say of what"))
                .at(Span::new(from.span))
                .help(help));
        }
        if let Token::Word(word) = &from.token
            && word.quote_style.is_none()
            && self.parser.peek_nth_token(1).token == Token::Lt
        {
            let error = SqlError::types(format!("there is no type {}<…>", word.value));
            let help =
                match closest(&word.value.to_uppercase(), ["ROW", "ARRAY", "MAP"].into_iter()) {
                    Some(meant) => format!("did you mean {meant}?"),
                    None => "the types that are made of others are ROW, ARRAY and MAP".to_string(),
                };
            return Err(error.at(Span::new(from.span)).help(help));
        }
        let sql_type = self.parser.parse_data_type()?;
        let span = from.span.union(&self.parser.get_current_token().span);
        Ok(TypeDef::Plain(sql_type, Span::new(span)))
    }

    fn row(&mut self, depth: usize) -> Result<TypeDef> {
        let row = self.parser.next_token();
        let close = self.open()?;
        let mut members = Vec::new();
        let mut names = HashSet::new();
        loop {
            if members.is_empty() && self.closes(&close) {
                return Err(SqlError::types("a ROW needs a field at least")
                    .at(Span::new(row.span))
                    .help("write for example ROW<a INT, b STRING>"));
            }
            let name = self.parser.parse_identifier()?;
            if !names.insert(name.value.clone()) {
                let message = format!("there are two fields '{}' in a ROW", name.value);
                return Err(SqlError::name(message)
                    .at(Span::new(name.span))
                    .help("give one of them another name"));
            }
            let member = self.member(depth + 1)?;
            if matches!(self.parser.peek_token().token, Token::SingleQuotedString(_)) {
                // A description.
                self.parser.next_token();
            }
            members.push((name, member));
            if self.half_closed || !self.parser.consume_token(&Token::Comma) {
                break;
            }
        }
        self.close(close)?;
        Ok(TypeDef::Row(members))
    }

    fn map(&mut self, depth: usize) -> Result<TypeDef> {
        self.parser.next_token();
        let close = self.open()?;
        let from = self.parser.peek_token();
        let mut key = self.member(depth + 1)?;
        if !matches!(key.of, TypeDef::Plain(..)) {
            return Err(SqlError::types("the keys of a MAP cannot be made of other values")
                .at(Span::new(from.span))
                .help("write for example MAP<STRING, INT>"));
        }
        key.nullable = false;
        self.parser.expect_token(&Token::Comma)?;
        let value = self.member(depth + 1)?;
        self.close(close)?;
        Ok(TypeDef::Map(Box::new(key), Box::new(value)))
    }

    /// A type and whether it may be NULL.
    fn member(&mut self, depth: usize) -> Result<Member> {
        let of = self.parse(depth)?;
        if self.half_closed {
            return Ok(Member { of, nullable: true });
        }
        let nullable = !self.parser.parse_keywords(&[Keyword::NOT, Keyword::NULL]);
        if nullable {
            let _ = self.parser.parse_keyword(Keyword::NULL);
        }
        Ok(Member { of, nullable })
    }

    /// Takes the opening bracket; returns the matching closing bracket.
    fn open(&mut self) -> Result<Token> {
        if self.parser.consume_token(&Token::LParen) {
            return Ok(Token::RParen);
        }
        self.parser.expect_token(&Token::Lt)?;
        Ok(Token::Gt)
    }

    fn closes(&self, close: &Token) -> bool {
        let next = self.parser.peek_token().token;
        next == *close || (*close == Token::Gt && next == Token::ShiftRight)
    }

    fn close(&mut self, close: Token) -> Result<()> {
        if self.half_closed {
            self.half_closed = false;
            if close == Token::Gt {
                self.parser.next_token();
                return Ok(());
            }
        } else if close == Token::Gt && self.parser.peek_token().token == Token::ShiftRight {
            self.half_closed = true;
            return Ok(());
        } else if self.parser.consume_token(&close) {
            return Ok(());
        }
        let next = self.parser.peek_token();
        Err(SqlError::syntax(format!("expected {close} at the end of a type, found {next}"))
            .at(Span::new(next.span)))
    }
}

fn multiset() -> SqlError {
    SqlError::unsupported("MULTISET does not run here: no format that is read has such values")
        .help("write MAP<…, INT>: each value with how often it is there")
}

/// Advice for a type written without its member types.
fn without_parts(word: &str) -> Option<&'static str> {
    match word.to_uppercase().as_str() {
        "ROW" => Some("write for example ROW<a INT, b STRING>"),
        "ARRAY" => Some("write for example ARRAY<INT>"),
        "MAP" => Some("write for example MAP<STRING, INT>"),
        _ => None,
    }
}
