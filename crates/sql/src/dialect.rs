//! Flink's lexical rules and the one piece of expression syntax that sqlparser does not know:
//! `TABLE t` as a function's argument.

use datafusion_sql::sqlparser::ast::{Expr, Ident};
use datafusion_sql::sqlparser::dialect::Dialect;
use datafusion_sql::sqlparser::keywords::{Keyword, RESERVED_FOR_IDENTIFIER};
use datafusion_sql::sqlparser::parser::{Parser, ParserError};
use datafusion_sql::sqlparser::tokenizer::Token;

/// The dialect of Millstream: Flink's, with double quotes for names too.
#[derive(Debug, Default)]
pub(crate) struct MillstreamDialect;

impl Dialect for MillstreamDialect {
    fn is_delimited_identifier_start(&self, ch: char) -> bool {
        ch == '"' || ch == '`'
    }

    fn is_identifier_start(&self, ch: char) -> bool {
        ch.is_alphabetic() || ch == '_'
    }

    fn is_identifier_part(&self, ch: char) -> bool {
        ch.is_alphanumeric() || ch == '_' || ch == '$'
    }

    fn supports_filter_during_aggregation(&self) -> bool {
        true
    }

    fn supports_group_by_expr(&self) -> bool {
        true
    }

    fn supports_subquery_as_function_arg(&self) -> bool {
        true
    }

    fn supports_unicode_string_literal(&self) -> bool {
        true
    }

    fn supports_table_versioning(&self) -> bool {
        true
    }

    fn supports_match_recognize(&self) -> bool {
        true
    }

    /// An expression that fails to parse is not tried as a name instead: CASE nested too deeply is
    /// no column "case", nor is a CASE without END.
    fn is_reserved_for_identifier(&self, keyword: Keyword) -> bool {
        keyword == Keyword::CASE || RESERVED_FOR_IDENTIFIER.contains(&keyword)
    }

    fn supports_nested_comments(&self) -> bool {
        false
    }

    /// `TABLE t` becomes the name `t`; what takes tables knows what it means.
    fn parse_prefix(&self, parser: &mut Parser) -> Option<Result<Expr, ParserError>> {
        if !parser.peek_keyword(Keyword::TABLE)
            || !matches!(parser.peek_nth_token(1).token, Token::Word(_))
        {
            return None;
        }
        parser.next_token();
        Some(parser.parse_object_name(true).and_then(|name| {
            let mut parts: Vec<Ident> =
                name.0.iter().filter_map(|part| part.as_ident().cloned()).collect();
            match parts.len() {
                0 => Err(ParserError::ParserError("Expected: a table's name".into())),
                1 => Ok(Expr::Identifier(parts.remove(0))),
                _ => Ok(Expr::CompoundIdentifier(parts)),
            }
        }))
    }
}
