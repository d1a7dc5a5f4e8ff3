//! The dialect: Flink's lexical rules, the precedence of its operators, and expression syntax that
//! sqlparser does not know: `TABLE t [PARTITION BY k]` as a function's argument, `MAP[key, value]`,
//! [several values of a CASE](crate::syntax::case_values), and that of
//! [JSON](crate::syntax::json_syntax).

use datafusion_sql::planner::{NullOrdering, ParserOptions};
use std::cell::Cell;

use datafusion_sql::sqlparser::ast::{Expr, Ident};
use datafusion_sql::sqlparser::dialect::{Dialect, Precedence};
use datafusion_sql::sqlparser::keywords::{Keyword, RESERVED_FOR_IDENTIFIER};
use datafusion_sql::sqlparser::parser::{Parser, ParserError};
use datafusion_sql::sqlparser::tokenizer::Token;

use crate::syntax::calls::{MAP, PARTITIONED, function};
use crate::syntax::case_values::parse_case;
use crate::syntax::json_syntax::{self, IsJson, calls_json};

/// The dialect of Millstream: Flink's, with double quotes for names too.
///
/// The parser tries some constructs in one form and, if the form fails, in a second form. Nested
/// constructs of this kind would be read exponentially often, so the dialect of a statement counts.
#[derive(Debug, Default)]
pub(crate) struct MillstreamDialect {
    /// Expressions that may be begun; none: any number.
    begun_max: Option<usize>,
    /// Expressions begun so far.
    begun: Cell<usize>,
    /// The furthest token at which an expression began.
    furthest: Cell<usize>,
    /// Joins read so far.
    joins: Cell<usize>,
}

/// Joins of a statement that may stand within each other without brackets: their reader recurses.
const NESTED_JOINS_MAX: usize = 200;

/// An expression for each token is what a statement has at most; some are read again.
const BEGUN_PER_TOKEN: usize = 50;

/// Words that sqlparser first reads as a call, whatever follows, and as a name if the call fails.
const CALLS: [Keyword; 12] = [
    Keyword::CAST,
    Keyword::TRY_CAST,
    Keyword::SAFE_CAST,
    Keyword::CONVERT,
    Keyword::EXTRACT,
    Keyword::CEIL,
    Keyword::FLOOR,
    Keyword::POSITION,
    Keyword::SUBSTR,
    Keyword::SUBSTRING,
    Keyword::OVERLAY,
    Keyword::TRIM,
];

impl MillstreamDialect {
    /// For one statement of so many tokens.
    pub(crate) fn of_statement(tokens: usize) -> MillstreamDialect {
        let begun_max = Some(1_000 + BEGUN_PER_TOKEN * tokens);
        MillstreamDialect { begun_max, ..MillstreamDialect::default() }
    }

    /// The token at which reading got stuck, if it was given up.
    pub(crate) fn stuck_at(&self) -> Option<usize> {
        let given_up = self.begun_max.is_some_and(|max| self.begun.get() > max);
        given_up.then(|| self.furthest.get())
    }

    /// `floor` alone is a column.
    fn call_as_name(parser: &mut Parser) -> Option<Result<Expr, ParserError>> {
        let Token::Word(word) = parser.peek_token_ref().token.clone() else { return None };
        let name = word.quote_style.is_none() && CALLS.contains(&word.keyword);
        if !name || parser.peek_nth_token_ref(1).token == Token::LParen {
            return None;
        }
        Some(parser.parse_identifier().map(Expr::Identifier))
    }
}

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

    /// `a JOIN b JOIN c ON … ON …` is `a JOIN (b JOIN c ON …) ON …`, as in the SQL standard.
    fn supports_left_associative_joins_without_parens(&self) -> bool {
        self.joins.set(self.joins.get() + 1);
        self.joins.get() > NESTED_JOINS_MAX
    }

    /// An expression that fails to parse is not tried as a name instead: CASE nested too deeply is
    /// no column "case", nor is a CASE without END.
    fn is_reserved_for_identifier(&self, keyword: Keyword) -> bool {
        matches!(keyword, Keyword::CASE | Keyword::NOT)
            || CALLS.contains(&keyword)
            || RESERVED_FOR_IDENTIFIER.contains(&keyword)
    }

    fn supports_nested_comments(&self) -> bool {
        false
    }

    /// As in Calcite, which reads Flink's SQL: LIKE, BETWEEN and IN bind more tightly than
    /// comparisons, and the `IS NULL` kind less. Only the order matters. `AT TIME ZONE`, which
    /// Flink has not, belongs to what stands right before it, as in the SQL standard.
    fn prec_value(&self, precedence: Precedence) -> u8 {
        match precedence {
            Precedence::Period => 100,
            Precedence::DoubleColon => 50,
            Precedence::AtTz => 41,
            Precedence::MulDivModOp => 40,
            Precedence::PlusMinus => 30,
            Precedence::Xor => 26,
            Precedence::Ampersand => 25,
            Precedence::Caret => 24,
            Precedence::Pipe | Precedence::Colon => 23,
            Precedence::Between | Precedence::Like => 20,
            Precedence::Eq => 19,
            Precedence::Is => 17,
            Precedence::PgOther => 16,
            Precedence::UnaryNot => 15,
            Precedence::And => 10,
            Precedence::Or => 5,
        }
    }

    /// `IS [NOT] DISTINCT FROM` is a comparison.
    fn get_next_precedence(&self, parser: &Parser) -> Option<Result<u8, ParserError>> {
        if IsJson::ahead(parser).is_some() {
            return Some(Ok(self.prec_value(Precedence::Is)));
        }
        distinct_from(parser).map(|_| Ok(self.prec_value(Precedence::Eq)))
    }

    /// sqlparser would take all that follows `IS DISTINCT FROM` for its right side, `AND` too.
    fn parse_infix(
        &self,
        parser: &mut Parser,
        left: &Expr,
        precedence: u8,
    ) -> Option<Result<Expr, ParserError>> {
        if let Some(is_json) = IsJson::ahead(parser) {
            return Some(Ok(is_json.parse(parser, left)));
        }
        let (words, negated) = distinct_from(parser)?;
        (0..words).for_each(|_| parser.advance_token());
        let left = Box::new(left.clone());
        Some(parser.parse_subexpr(precedence).map(|right| match negated {
            true => Expr::IsNotDistinctFrom(left, Box::new(right)),
            false => Expr::IsDistinctFrom(left, Box::new(right)),
        }))
    }

    /// `TABLE t` becomes the name `t`, `TABLE 'x'` the name of a file; functions that take tables
    /// know the meaning.
    fn parse_prefix(&self, parser: &mut Parser) -> Option<Result<Expr, ParserError>> {
        self.begun.set(self.begun.get() + 1);
        self.furthest.set(self.furthest.get().max(parser.index()));
        if self.stuck_at().is_some() {
            // After this error the parser tries nothing else.
            return Some(Err(ParserError::RecursionLimitExceeded));
        }
        if let Some(name) = MillstreamDialect::call_as_name(parser) {
            return Some(name);
        }
        if let Some(case) = parse_case(parser) {
            return Some(case);
        }
        if trims_blanks(parser) {
            return Some(parse_trim(parser));
        }
        if makes_map(parser) {
            return Some(parse_map(parser));
        }
        if calls_json(parser) {
            return Some(json_syntax::parse_call(parser));
        }
        if !parser.peek_keyword(Keyword::TABLE)
            || !matches!(
                parser.peek_nth_token(1).token,
                Token::Word(_) | Token::SingleQuotedString(_)
            )
        {
            return None;
        }
        parser.next_token();
        Some(parser.parse_object_name(true).and_then(|name| {
            let mut parts: Vec<Ident> =
                name.0.iter().filter_map(|part| part.as_ident().cloned()).collect();
            let Some(first) = parts.first().cloned() else {
                return Err(ParserError::ParserError("Expected: a table's name".into()));
            };
            let table = match parts.len() {
                1 => Expr::Identifier(parts.remove(0)),
                _ => Expr::CompoundIdentifier(parts),
            };
            if !parser.parse_keywords(&[Keyword::PARTITION, Keyword::BY]) {
                return Ok(table);
            }
            let mut args = vec![table];
            args.extend(parse_partition(parser)?);
            Ok(function(&first, PARTITIONED, args))
        }))
    }
}

/// The columns of PARTITION BY, alone or in brackets. Without brackets the last is followed by the
/// next argument, a call or `name => …`.
fn parse_partition(parser: &mut Parser) -> Result<Vec<Expr>, ParserError> {
    if parser.consume_token(&Token::LParen) {
        let columns = parser.parse_comma_separated(Parser::parse_expr)?;
        parser.expect_token(&Token::RParen)?;
        return Ok(columns);
    }
    let mut columns = vec![Expr::Identifier(parser.parse_identifier()?)];
    while parser.peek_token_ref().token == Token::Comma
        && matches!(parser.peek_nth_token_ref(1).token, Token::Word(_))
        && !matches!(parser.peek_nth_token_ref(2).token, Token::LParen | Token::RArrow)
    {
        parser.advance_token();
        columns.push(Expr::Identifier(parser.parse_identifier()?));
    }
    Ok(columns)
}

/// Which keyword comes so many tokens later, if it is a word.
fn keyword_at(parser: &Parser, at: usize) -> Option<Keyword> {
    match &parser.peek_nth_token_ref(at).token {
        Token::Word(word) => Some(word.keyword),
        _ => None,
    }
}

/// Whether `TRIM(BOTH FROM` comes next, or LEADING or TRAILING, which does not say what is cut off.
fn trims_blanks(parser: &Parser) -> bool {
    let word = |at: usize, among: &[Keyword]| {
        keyword_at(parser, at).is_some_and(|keyword| among.contains(&keyword))
    };
    word(0, &[Keyword::TRIM])
        && parser.peek_nth_token_ref(1).token == Token::LParen
        && word(2, &[Keyword::BOTH, Keyword::LEADING, Keyword::TRAILING])
        && word(3, &[Keyword::FROM])
}

/// Reads what [`trims_blanks`] has found.
fn parse_trim(parser: &mut Parser) -> Result<Expr, ParserError> {
    parser.advance_token();
    parser.advance_token();
    let trim_where = Some(parser.parse_trim_where()?);
    parser.advance_token();
    let expr = Box::new(parser.parse_expr()?);
    parser.expect_token(&Token::RParen)?;
    Ok(Expr::Trim { expr, trim_where, trim_what: None, trim_characters: None })
}

/// Whether `MAP[` comes next. Where a comma follows at once, or nothing, or a key and a comma, it
/// makes a map; else it is a value of a column of that name.
fn makes_map(parser: &Parser) -> bool {
    let word = |token: &Token| matches!(token, Token::Word(w) if w.quote_style.is_none());
    if keyword_at(parser, 0) != Some(Keyword::MAP)
        || !word(&parser.peek_token_ref().token)
        || parser.peek_nth_token_ref(1).token != Token::LBracket
    {
        return false;
    }
    if parser.peek_nth_token_ref(2).token == Token::RBracket {
        return true;
    }
    let mut open = 0usize;
    for at in 1.. {
        match &parser.peek_nth_token_ref(at).token {
            Token::LBracket | Token::LParen => open += 1,
            Token::Comma if open == 1 => return true,
            Token::RBracket | Token::RParen if open <= 1 => return false,
            Token::RBracket | Token::RParen => open -= 1,
            Token::EOF | Token::SemiColon => return false,
            _ => {}
        }
    }
    false
}

/// Reads a map found by [`makes_map`], and the accesses to its elements.
fn parse_map(parser: &mut Parser) -> Result<Expr, ParserError> {
    let name = parser.parse_identifier()?;
    parser.expect_token(&Token::LBracket)?;
    let parts = match parser.consume_token(&Token::RBracket) {
        true => vec![],
        false => {
            let parts = parser.parse_comma_separated(Parser::parse_expr)?;
            parser.expect_token(&Token::RBracket)?;
            parts
        }
    };
    parser.parse_compound_expr(function(&name, &MAP.to_uppercase(), parts), vec![])
}

/// The number of words in `IS [NOT] DISTINCT FROM`, if it comes next, and whether it is negated.
fn distinct_from(parser: &Parser) -> Option<(usize, bool)> {
    let is = |at: usize, keyword: Keyword| keyword_at(parser, at) == Some(keyword);
    let negated = is(1, Keyword::NOT);
    let at = 1 + usize::from(negated);
    let found = is(0, Keyword::IS) && is(at, Keyword::DISTINCT) && is(at + 1, Keyword::FROM);
    found.then_some((at + 2, negated))
}

/// Options of DataFusion's planner for parsed statements.
pub(crate) fn parser_options() -> ParserOptions {
    ParserOptions::new()
        .with_enable_ident_normalization(false)
        .with_map_string_types_to_utf8view(false)
        .with_collect_spans(true)
        // As in Flink, too; see `double` in `calls` for those with an exponent.
        .with_parse_float_as_decimal(true)
        // As in Flink: where nothing else is said, NULLs are the smallest.
        .with_default_null_ordering(NullOrdering::NullsMin)
}
