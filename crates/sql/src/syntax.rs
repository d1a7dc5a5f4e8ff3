//! Where the parts of a statement stand: finds the text that an expression of a logical plan was
//! written as, for messages about it.
//!
//! DataFusion keeps the places of columns alone. What else there is, is found by comparing the
//! expression with those of the syntax tree, part by part.

use std::cell::Cell;
use std::ops::ControlFlow;
use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_common::{Column, DFSchema};
use datafusion_expr::{BinaryExpr, Expr, ExprSchemable, Operator};
use datafusion_sql::sqlparser::ast::{
    self, Expr as SqlExpr, FunctionArg, FunctionArgExpr, FunctionArguments, Query, Spanned, Visit,
    Visitor,
};
use datafusion_sql::sqlparser::keywords::Keyword;
use datafusion_sql::sqlparser::tokenizer::{Location, Token, TokenWithSpan, Tokenizer};

use crate::dialect::MillstreamDialect;
use crate::error::{Place, Result, Source, Span, SqlError};
use crate::located::{located, within_mark};

/// Comparisons of one part with another after which the search is given up: places are worth only
/// so much time.
const COMPARISONS_MAX: u32 = 3_000_000;

/// The expressions of a statement.
#[derive(Debug)]
pub(crate) struct Syntax {
    source: Arc<Source>,
    /// Those that are in no other expression.
    roots: Vec<SqlExpr>,
    /// The text's tokens, without blanks and comments.
    tokens: Vec<TokenWithSpan>,
}

impl Syntax {
    /// Of a query as it was planned.
    pub(crate) fn of_query(query: &Query, source: &Arc<Source>) -> Syntax {
        struct Roots {
            found: Vec<SqlExpr>,
            /// Per query that we are in: how many expressions we are in.
            depth: Vec<usize>,
        }
        impl Visitor for Roots {
            type Break = ();
            fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
                self.depth.push(0);
                ControlFlow::Continue(())
            }
            fn post_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
                self.depth.pop();
                ControlFlow::Continue(())
            }
            fn pre_visit_expr(&mut self, expr: &SqlExpr) -> ControlFlow<()> {
                if let Some(depth) = self.depth.last_mut() {
                    if *depth == 0 {
                        self.found.push(expr.clone());
                    }
                    *depth += 1;
                }
                ControlFlow::Continue(())
            }
            fn post_visit_expr(&mut self, _: &SqlExpr) -> ControlFlow<()> {
                if let Some(depth) = self.depth.last_mut() {
                    *depth -= 1;
                }
                ControlFlow::Continue(())
            }
        }
        let mut roots = Roots { found: Vec::new(), depth: Vec::new() };
        let _ = query.visit(&mut roots);
        Syntax { source: source.clone(), roots: roots.found, tokens: tokens(source) }
    }

    /// Of one expression.
    pub(crate) fn of_expr(expr: &SqlExpr, source: &Arc<Source>) -> Syntax {
        Syntax { source: source.clone(), roots: vec![expr.clone()], tokens: tokens(source) }
    }

    /// The whole text of an expression: sqlparser's spans leave out brackets, and the names of what
    /// looks like a function and is none.
    pub(crate) fn span(&self, expr: &SqlExpr) -> Option<Span> {
        let (from, to) = self.range(expr)?;
        Span::new(self.tokens.get(from)?.span.union(&self.tokens.get(to)?.span))
    }

    /// The text of a range.
    pub(crate) fn text(&self, span: Span) -> String {
        self.source.slice(span)
    }

    /// Places an error that is about a keyword, and marks more than that, at the keyword.
    pub(crate) fn at_keyword(&self, mut error: SqlError) -> SqlError {
        let word = error.message.split(' ').next().unwrap_or_default().trim_end_matches('s');
        let Some(span) = error.span.filter(|_| word.len() > 1) else { return error };
        let within = |t: &&TokenWithSpan| {
            (span.line.into(), span.column.into()) <= order(t.span.start)
                && order(t.span.end) <= (span.end_line.into(), span.end_column.into())
        };
        let found = self.tokens.iter().filter(within).find(|t| {
            matches!(&t.token, Token::Word(w) if w.keyword != Keyword::NoKeyword && w.value.to_uppercase() == word)
        });
        error.span = found.and_then(|t| Span::new(t.span)).or(error.span);
        error
    }

    /// The first and the last token of an expression.
    fn range(&self, expr: &SqlExpr) -> Option<(usize, usize)> {
        match expr {
            SqlExpr::Nested(inner) => Some(self.in_brackets(self.range(inner)?)),
            SqlExpr::BinaryOp { left, right, .. } => {
                let (left, right) = (self.range(left)?, self.range(right)?);
                Some((left.0.min(right.0), left.1.max(right.1)))
            }
            SqlExpr::UnaryOp { expr, .. } => {
                let (from, to) = self.range(expr)?;
                Some((from.checked_sub(1)?, to))
            }
            SqlExpr::Function(call) => {
                let name = self.at(call.name.span().start)?;
                match self.tokens.get(name + 1).map(|t| &t.token) {
                    Some(Token::LParen) => Some((name, self.closing(name + 1)?)),
                    _ => Some((name, name)),
                }
            }
            SqlExpr::Cast { expr, .. } => {
                let (from, to) = self.range(expr)?;
                match self.tokens.get(to + 1).map(|t| &t.token) {
                    Some(Token::DoubleColon) => Some((from, to + 2)),
                    _ => self.call((from, to)),
                }
            }
            SqlExpr::Extract { expr, .. }
            | SqlExpr::Substring { expr, .. }
            | SqlExpr::Trim { expr, .. }
            | SqlExpr::Ceil { expr, .. }
            | SqlExpr::Floor { expr, .. }
            | SqlExpr::Position { expr, .. }
            | SqlExpr::Overlay { expr, .. } => self.call(self.range(expr)?),
            other => {
                let span = other.span();
                Some((self.at(span.start)?, self.ending(span.end)?))
            }
        }
    }

    /// Extends a range to the brackets around it, and the name before them if they are a call's.
    fn in_brackets(&self, (from, to): (usize, usize)) -> (usize, usize) {
        let open = from.checked_sub(1).filter(|at| self.tokens[*at].token == Token::LParen);
        let close = self.tokens.get(to + 1).filter(|t| t.token == Token::RParen);
        let (Some(open), Some(_)) = (open, close) else { return (from, to) };
        let named = open.checked_sub(1).filter(|at| {
            matches!(&self.tokens[*at].token, Token::Word(w) if w.keyword == Keyword::NoKeyword)
        });
        (named.unwrap_or(open), to + 1)
    }

    /// The call that a range is an argument of: `NAME(… range …)`.
    fn call(&self, (from, to): (usize, usize)) -> Option<(usize, usize)> {
        let mut depth = 0;
        let mut at = from;
        // Over what stands between the name's bracket and the argument, such as `YEAR FROM`.
        let open = loop {
            at = at.checked_sub(1)?;
            match &self.tokens[at].token {
                Token::RParen => depth += 1,
                Token::LParen if depth > 0 => depth -= 1,
                Token::LParen => {
                    if matches!(&self.tokens[at.checked_sub(1)?].token, Token::Word(_)) {
                        break at;
                    }
                }
                Token::SemiColon => return None,
                _ => {}
            }
        };
        let close = self.closing(open)?;
        (close >= to).then_some((open - 1, close))
    }

    /// The bracket that closes the one at `open`.
    fn closing(&self, open: usize) -> Option<usize> {
        let mut depth = 0;
        for (at, token) in self.tokens.iter().enumerate().skip(open) {
            match token.token {
                Token::LParen => depth += 1,
                Token::RParen => {
                    depth -= 1;
                    if depth == 0 {
                        return Some(at);
                    }
                }
                Token::SemiColon => return None,
                _ => {}
            }
        }
        None
    }

    /// The token that starts at a location.
    fn at(&self, start: Location) -> Option<usize> {
        self.tokens.binary_search_by(|t| order(t.span.start).cmp(&order(start))).ok()
    }

    /// The last token that ends at or before a location.
    fn ending(&self, end: Location) -> Option<usize> {
        self.tokens.partition_point(|t| order(t.span.end) <= order(end)).checked_sub(1)
    }
}

fn order(location: Location) -> (u64, u64) {
    (location.line, location.column)
}

fn tokens(source: &Source) -> Vec<TokenWithSpan> {
    let tokens = Tokenizer::new(&MillstreamDialect, &source.text).tokenize_with_location();
    let mut tokens = tokens.unwrap_or_default();
    tokens.retain(|t| !matches!(t.token, Token::Whitespace(_)));
    tokens
}

/// The statement that is being planned and the views that it may use.
#[derive(Debug, Default)]
pub(crate) struct Texts {
    syntax: Vec<Arc<Syntax>>,
    /// Comparisons that may still be made.
    left: Cell<u32>,
}

impl Texts {
    pub(crate) fn new(syntax: Vec<Arc<Syntax>>) -> Texts {
        Texts { syntax, left: Cell::new(COMPARISONS_MAX) }
    }

    /// Where an expression stands, if it is found.
    pub(crate) fn place(&self, expr: &Expr) -> Option<Place> {
        let mut best: Option<(u32, Place)> = None;
        for syntax in &self.syntax {
            for root in &syntax.roots {
                self.search(expr, root, syntax, &mut best);
            }
        }
        best.map(|(_, place)| place)
    }

    fn search(&self, expr: &Expr, sql: &SqlExpr, syntax: &Syntax, best: &mut Option<(u32, Place)>) {
        if self.left.get() == 0 {
            return;
        }
        // What is within brackets is found there.
        if !matches!(sql, SqlExpr::Nested(_))
            && let Some(score) = self.compare(expr, sql)
            && best.as_ref().is_none_or(|(least, _)| score > *least)
            && let Some(span) = syntax.span(sql)
        {
            *best = Some((score, Place { span, source: syntax.source.clone() }));
        }
        for part in parts(sql) {
            self.search(expr, part, syntax, best);
        }
    }

    /// Marks the parts of `expr`, which is over `schema`, that may fail.
    pub(crate) fn mark(&self, expr: Expr, schema: &DFSchema) -> Result<Expr> {
        let marked = expr.transform_up(|e| {
            if !may_fail(&e, schema) {
                return Ok(Transformed::no(e));
            }
            match self.place(&e) {
                Some(place) => Ok(Transformed::yes(located(e, place))),
                None => Ok(Transformed::no(e)),
            }
        });
        Ok(marked.map_err(SqlError::from)?.data)
    }

    /// How much speaks for `sql` being the text of `expr`; `None` if it is not.
    fn compare(&self, expr: &Expr, sql: &SqlExpr) -> Option<u32> {
        self.left.set(self.left.get().checked_sub(1)?);
        if let SqlExpr::Nested(inner) = sql {
            return self.compare(expr, inner);
        }
        if let Some(inner) = within_mark(expr) {
            return self.compare(inner, sql);
        }
        match (expr, sql) {
            (Expr::Alias(alias), _) => self.compare(&alias.expr, sql),
            (Expr::BinaryExpr(binary), SqlExpr::BinaryOp { left, op, right }) => {
                if !same_operator(&binary.op, op) {
                    return None;
                }
                let left = self.compare(&binary.left, left)?;
                Some(1 + left + self.compare(&binary.right, right)?)
            }
            (Expr::BinaryExpr(_), _) => None,
            (Expr::Negative(inner), SqlExpr::UnaryOp { op: ast::UnaryOperator::Minus, expr }) => {
                Some(1 + self.compare(inner, expr)?)
            }
            (Expr::Cast(cast), SqlExpr::Cast { expr, .. }) => {
                Some(1 + self.compare(&cast.expr, expr)?)
            }
            // Put in by the planner, to make types agree.
            (Expr::Cast(cast), _) => self.compare(&cast.expr, sql),
            (Expr::ScalarFunction(call), SqlExpr::Function(written)) => {
                let name = written.name.to_string().to_lowercase();
                let named =
                    call.name() == name || call.func.aliases().iter().any(|alias| *alias == name);
                if named { self.compare_all(&call.args, &arguments(written)?) } else { None }
            }
            (Expr::AggregateFunction(call), SqlExpr::Function(written)) => {
                if !written.name.to_string().eq_ignore_ascii_case(call.func.name()) {
                    return None;
                }
                let filter = match (&call.params.filter, &written.filter) {
                    (Some(ours), Some(theirs)) => self.compare(ours, theirs)?,
                    (None, None) => 0,
                    _ => return None,
                };
                let arguments = arguments(written)?;
                if arguments.is_empty() {
                    let star = matches!(&call.params.args[..], [Expr::Literal(..)] | []);
                    return star.then_some(1 + filter);
                }
                Some(filter + self.compare_all(&call.params.args, &arguments)?)
            }
            (Expr::ScalarFunction(_), _) if is_special_call(sql) => Some(0),
            (Expr::ScalarFunction(_) | Expr::AggregateFunction(_), _) => None,
            (Expr::Column(column), _) => compare_column(column, sql),
            (Expr::Literal(..), _) => is_constant(sql).then_some(0),
            // Parts of conditions are found one by one.
            _ => (!is_simple(sql)).then_some(0),
        }
    }

    fn compare_all(&self, exprs: &[Expr], written: &[&SqlExpr]) -> Option<u32> {
        if exprs.len() != written.len() {
            return None;
        }
        let mut score = 1;
        for (expr, sql) in exprs.iter().zip(written) {
            score += self.compare(expr, sql)?;
        }
        Some(score)
    }
}

/// Whether evaluating the outermost operation of an expression may fail for some values.
fn may_fail(expr: &Expr, schema: &DFSchema) -> bool {
    use Operator::{Divide, Minus, Modulo, Multiply, Plus};
    match expr {
        Expr::BinaryExpr(BinaryExpr { op, .. }) => {
            matches!(op, Plus | Minus | Multiply | Divide | Modulo)
        }
        Expr::Negative(_) => true,
        Expr::Cast(cast) => match cast.expr.get_type(schema) {
            Ok(from) => !always_fits(&from, cast.field.data_type()),
            Err(_) => true,
        },
        Expr::ScalarFunction(_) => within_mark(expr).is_none(),
        _ => false,
    }
}

/// Whether every value of a type can be cast to another.
fn always_fits(from: &DataType, to: &DataType) -> bool {
    use DataType::*;
    let rank = |t: &DataType| match t {
        Int8 => Some(1),
        Int16 => Some(2),
        Int32 => Some(3),
        Int64 => Some(4),
        _ => None,
    };
    match (rank(from), rank(to)) {
        (Some(from), Some(to)) => from <= to,
        _ => from == to || *from == Null || (from.is_numeric() && to.is_floating()),
    }
}

fn same_operator(ours: &Operator, written: &ast::BinaryOperator) -> bool {
    use ast::BinaryOperator as B;
    match ours {
        Operator::NotEq => *written == B::NotEq,
        Operator::Modulo => *written == B::Modulo,
        Operator::StringConcat => *written == B::StringConcat,
        other => other.to_string() == written.to_string(),
    }
}

/// A column may stand for itself or for what was grouped by or aggregated.
fn compare_column(column: &Column, sql: &SqlExpr) -> Option<u32> {
    let name = match sql {
        SqlExpr::Identifier(name) => name,
        SqlExpr::CompoundIdentifier(parts) => parts.last()?,
        SqlExpr::Value(_) => return None,
        SqlExpr::Function(call) => {
            let bare = |text: &str| {
                let text: String = text.split_whitespace().collect();
                let text = text.replace("Int64(1)", "*").to_lowercase();
                // Without the tables' names.
                text.rsplit_once('.').map_or(text.clone(), |(before, last)| {
                    let start = before.rfind(['(', ',']).map_or(0, |at| at + 1);
                    format!("{}{last}", &before[..start])
                })
            };
            let written = call.to_string();
            return match bare(&written) == bare(&column.name) {
                true => Some(2),
                false => None,
            };
        }
        _ => return (!column.name.chars().all(|c| c.is_alphanumeric() || c == '_')).then_some(0),
    };
    if name.value != column.name {
        return None;
    }
    let span = column.spans.first().map(Span::from);
    Some(if span.is_some() && span == Span::new(sql.span()) { 16 } else { 1 })
}

/// sqlparser's own syntax for some functions.
fn is_special_call(sql: &SqlExpr) -> bool {
    matches!(
        sql,
        SqlExpr::Extract { .. }
            | SqlExpr::Substring { .. }
            | SqlExpr::Trim { .. }
            | SqlExpr::Ceil { .. }
            | SqlExpr::Floor { .. }
            | SqlExpr::Position { .. }
            | SqlExpr::Overlay { .. }
            | SqlExpr::AtTimeZone { .. }
    )
}

fn is_simple(sql: &SqlExpr) -> bool {
    matches!(
        sql,
        SqlExpr::Identifier(_)
            | SqlExpr::CompoundIdentifier(_)
            | SqlExpr::Value(_)
            | SqlExpr::BinaryOp { .. }
            | SqlExpr::Function(_)
            | SqlExpr::Cast { .. }
    )
}

fn is_constant(sql: &SqlExpr) -> bool {
    match sql {
        SqlExpr::Identifier(_) | SqlExpr::CompoundIdentifier(_) => false,
        SqlExpr::Function(call) => arguments(call).is_some_and(|a| !a.is_empty()),
        _ => parts(sql).into_iter().all(is_constant),
    }
}

/// The plain arguments of a call; none for `COUNT(*)`.
fn arguments(call: &ast::Function) -> Option<Vec<&SqlExpr>> {
    let FunctionArguments::List(list) = &call.args else { return Some(vec![]) };
    let mut arguments = Vec::new();
    for argument in &list.args {
        match argument {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => arguments.push(expr),
            FunctionArg::Unnamed(FunctionArgExpr::Wildcard) => {}
            _ => return None,
        }
    }
    Some(arguments)
}

/// What an expression is made of.
pub(crate) fn parts(sql: &SqlExpr) -> Vec<&SqlExpr> {
    match sql {
        SqlExpr::Nested(e)
        | SqlExpr::UnaryOp { expr: e, .. }
        | SqlExpr::Cast { expr: e, .. }
        | SqlExpr::IsNull(e)
        | SqlExpr::IsNotNull(e)
        | SqlExpr::IsTrue(e)
        | SqlExpr::IsNotTrue(e)
        | SqlExpr::IsFalse(e)
        | SqlExpr::IsNotFalse(e)
        | SqlExpr::IsUnknown(e)
        | SqlExpr::IsNotUnknown(e)
        | SqlExpr::Extract { expr: e, .. }
        | SqlExpr::Ceil { expr: e, .. }
        | SqlExpr::Floor { expr: e, .. } => vec![e],
        SqlExpr::BinaryOp { left, right, .. }
        | SqlExpr::IsDistinctFrom(left, right)
        | SqlExpr::IsNotDistinctFrom(left, right)
        | SqlExpr::Position { expr: left, r#in: right } => vec![left, right],
        SqlExpr::Like { expr, pattern, .. }
        | SqlExpr::ILike { expr, pattern, .. }
        | SqlExpr::SimilarTo { expr, pattern, .. } => vec![expr, pattern],
        SqlExpr::Between { expr, low, high, .. } => vec![expr, low, high],
        SqlExpr::InList { expr, list, .. } => std::iter::once(&**expr).chain(list.iter()).collect(),
        SqlExpr::Case { operand, conditions, else_result, .. } => {
            let arms = conditions.iter().flat_map(|arm| [&arm.condition, &arm.result]);
            let operand = operand.iter().map(|e| &**e);
            operand.chain(arms).chain(else_result.iter().map(|e| &**e)).collect()
        }
        SqlExpr::Substring { expr, substring_from, substring_for, .. } => {
            let rest = substring_from.iter().chain(substring_for).map(|e| &**e);
            std::iter::once(&**expr).chain(rest).collect()
        }
        SqlExpr::Trim { expr, trim_what, .. } => {
            std::iter::once(&**expr).chain(trim_what.iter().map(|e| &**e)).collect()
        }
        SqlExpr::Function(call) => {
            let filter = call.filter.iter().map(|e| &**e);
            arguments(call).unwrap_or_default().into_iter().chain(filter).collect()
        }
        _ => vec![],
    }
}
