//! Finding the text that an expression of a logical plan was written as.
//!
//! DataFusion keeps the places of columns only. All others are found by comparing the expression
//! with the expressions of the syntax tree, part by part.

use std::borrow::Cow;
use std::sync::atomic::{AtomicU32, Ordering};

use arrow::datatypes::{Decimal128Type, DecimalType};
use datafusion_common::ExprSchema;
use datafusion_sql::sqlparser::ast;

use crate::expr::located::{located, within_mark};
use crate::expr::scalars::{Access, SAFE, access, exact_operation};
use crate::syntax::prelude::*;
use crate::syntax::tree::{Syntax, arguments, parts};

/// Comparisons of one part with another after which the search is given up: places are worth only
/// so much time.
const COMPARISONS_MAX: u32 = 3_000_000;

/// The statement that is being planned and the views that it may use.
#[derive(Debug, Default)]
pub(crate) struct Texts {
    syntax: Vec<Arc<Syntax>>,
    /// Comparisons that may still be made.
    left: AtomicU32,
}

impl Texts {
    pub(crate) fn new(syntax: Vec<Arc<Syntax>>) -> Texts {
        Texts { syntax, left: AtomicU32::new(COMPARISONS_MAX) }
    }

    /// The statement, and the views.
    pub(crate) fn all(self) -> Vec<Arc<Syntax>> {
        self.syntax
    }

    /// Begins to count comparisons anew.
    pub(crate) fn renew(&self) {
        self.left.store(COMPARISONS_MAX, Ordering::Relaxed);
    }

    /// Where an expression stands, if it is found.
    pub(crate) fn place(&self, expr: &Expr) -> Option<Place> {
        self.find(expr, Clause::Any).map(|found| found.place)
    }

    /// A place in the statement.
    pub(crate) fn at(&self, span: Option<Span>) -> Option<Place> {
        Some(Place { span: span?, source: self.syntax.first()?.source().clone() })
    }

    /// The first such keyword in a range of the statement.
    pub(crate) fn keyword(&self, word: &str, within: Span) -> Option<Span> {
        self.syntax.first()?.keyword(word, within)
    }

    /// Of equal texts, the one in the clause.
    fn find(&self, expr: &Expr, clause: Clause) -> Option<TextMatch<'_>> {
        let mut best = None;
        let named = plain_column(expr);
        for syntax in &self.syntax {
            let mut search = |(root, having): (_, bool)| {
                let preferred = having == (clause == Clause::Having);
                self.search(expr, root, (syntax, preferred), &mut best);
            };
            match named.as_ref().and_then(|name| syntax.roots_with(name)) {
                Some(roots) => roots.for_each(&mut search),
                None => syntax.roots().for_each(&mut search),
            }
        }
        best
    }

    fn search<'a>(
        &'a self,
        expr: &Expr,
        sql: &'a SqlExpr,
        (syntax, preferred): (&Syntax, bool),
        best: &mut Option<TextMatch<'a>>,
    ) {
        if self.left.load(Ordering::Relaxed) == 0 {
            return;
        }
        // What is within brackets is found there.
        if !matches!(sql, SqlExpr::Nested(_))
            && let Some(score) = self.compare(expr, sql).map(|score| (score, preferred))
            && best.as_ref().is_none_or(|best| score > best.score)
            && let Some(span) = syntax.span(sql)
        {
            let place = Place { span, source: syntax.source().clone() };
            *best = Some(TextMatch { score, sql, place });
        }
        for part in parts(sql) {
            self.search(expr, part, (syntax, preferred), best);
        }
    }

    /// Marks the parts of `expr`, which is over `schema`, that may fail.
    pub(crate) fn mark(&self, expr: Expr, schema: &dyn ExprSchema) -> Result<Expr> {
        self.mark_in(Clause::Any, expr, schema)
    }

    /// The same, of an expression that stands in a clause.
    pub(crate) fn mark_in(
        &self,
        clause: Clause,
        expr: Expr,
        schema: &dyn ExprSchema,
    ) -> Result<Expr> {
        let marked = expr.changed_up(|e| {
            let found = if may_fail(&e, schema) { self.find(&e, clause) } else { None };
            Ok(match found.filter(|found| is_worth_a_mark(&e, found.sql, schema)) {
                Some(found) => Transformed::yes(located(e, found.place)),
                None => Transformed::no(e),
            })
        });
        Ok(marked?.data)
    }

    /// How much speaks for `sql` being the text of `expr`; `None` if it is not.
    fn compare(&self, expr: &Expr, sql: &SqlExpr) -> Option<u32> {
        self.left.store(self.left.load(Ordering::Relaxed).checked_sub(1)?, Ordering::Relaxed);
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
                // A chain goes on to the left.
                let right = self.compare(&binary.right, right)?;
                Some(1 + right + self.compare(&binary.left, left)?)
            }
            (Expr::BinaryExpr(_), _) => None,
            (exact, SqlExpr::BinaryOp { left, op, right })
                if let Some((our_left, our_op, our_right)) = exact_operation(exact) =>
            {
                if !same_operator(&our_op, op) {
                    return None;
                }
                Some(1 + self.compare(our_right, right)? + self.compare(our_left, left)?)
            }
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
                let named = call.name() == name || call.func.aliases().contains(&name);
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
            (_, SqlExpr::CompoundIdentifier(names))
                if let Some(Access::Field(_, name)) = access(expr) =>
            {
                names.last().filter(|last| last.value == name).map(|_| 1)
            }
            (Expr::ScalarFunction(_), _) if is_special_call(sql) => Some(0),
            (Expr::ScalarFunction(_) | Expr::AggregateFunction(_), _) => None,
            (Expr::Column(column), _) => compare_column(column, sql),
            (Expr::Literal(..), _) => is_constant(sql).then_some(0),
            // Parts of conditions are looked up separately.
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

/// Where an expression stands in its SELECT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Clause {
    Having,
    /// Another one.
    Any,
}

/// An expression's text.
struct TextMatch<'a> {
    /// And whether it stands in the clause that was asked for.
    score: (u32, bool),
    sql: &'a SqlExpr,
    place: Place,
}

/// A cast that the planner put in is simplified away in most comparisons, which a mark would
/// prevent; those of strings are likely to fail.
fn is_worth_a_mark(expr: &Expr, sql: &SqlExpr, schema: &dyn ExprSchema) -> bool {
    let (Expr::Cast(cast), false) = (expr, matches!(sql, SqlExpr::Cast { .. })) else {
        return true;
    };
    matches!(cast.expr.get_type(schema), Ok(DataType::Utf8))
}

/// Whether evaluating the outermost operation of an expression may fail for some values.
fn may_fail(expr: &Expr, schema: &dyn ExprSchema) -> bool {
    use Operator::{Divide, Minus, Modulo, Multiply, Plus, StringConcat};
    match expr {
        Expr::BinaryExpr(BinaryExpr { op, .. }) => {
            matches!(op, Plus | Minus | Multiply | Divide | Modulo | StringConcat)
        }
        Expr::Negative(_) => true,
        Expr::Cast(cast) => match cast.expr.get_type(schema) {
            Ok(from) => !always_fits(&from, cast.field.data_type()),
            Err(_) => true,
        },
        Expr::ScalarFunction(call) => within_mark(expr).is_none() && !SAFE.contains(&call.name()),
        Expr::SimilarTo(like) => !matches!(*like.pattern, Expr::Literal(..)),
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
        _ => match (from, to) {
            (Timestamp(..) | Date32, Timestamp(..)) | (Null, _) => true,
            _ => from == to || (from.is_numeric() && to.is_floating()),
        },
    }
}

fn same_operator(ours: &Operator, written: &ast::BinaryOperator) -> bool {
    use ast::BinaryOperator as B;
    match ours {
        Operator::NotEq => *written == B::NotEq,
        Operator::Modulo => *written == B::Modulo,
        Operator::StringConcat => *written == B::StringConcat,
        Operator::Plus => *written == B::Plus,
        Operator::Minus => *written == B::Minus,
        Operator::Multiply => *written == B::Multiply,
        Operator::Divide => *written == B::Divide,
        Operator::And => *written == B::And,
        Operator::Or => *written == B::Or,
        other => other.to_string() == written.to_string(),
    }
}

/// A column of the expression whose name is one word, as it stands in the text.
fn plain_column(expr: &Expr) -> Option<String> {
    let mut found = None;
    // Searching does not fail.
    let _ = expr.any_node(|e| {
        let column = e.try_as_col().filter(|column| is_word(&column.name));
        found = column.map(|column| column.name.clone());
        Ok(found.is_some())
    });
    found
}

fn has_arguments(call: &ast::Function) -> bool {
    arguments(call).is_some_and(|arguments| !arguments.is_empty())
}

fn is_word(name: &str) -> bool {
    name.chars().all(|c| c.is_alphanumeric() || c == '_')
}

/// A column may stand for itself or for what was grouped by or aggregated.
fn compare_column(column: &Column, sql: &SqlExpr) -> Option<u32> {
    let name = match sql {
        SqlExpr::Identifier(name) => name,
        SqlExpr::CompoundIdentifier(parts) => parts.last()?,
        SqlExpr::Value(_) => return None,
        // A call with arguments is more than a word.
        SqlExpr::Function(call) if is_word(&column.name) && has_arguments(call) => return None,
        SqlExpr::Function(call) => {
            return same_words(&column.name, &call.to_string()).then_some(2);
        }
        _ => return (!is_word(&column.name)).then_some(0),
    };
    if name.value != column.name {
        return None;
    }
    let span = column.spans.first().map(Span::from);
    Some(if span.is_some() && span == Span::new(sql.span()) { 16 } else { 1 })
}

/// Whether a planned call's name says what was written, apart from brackets, quotes, the names of
/// tables and the types of constants: `sum(t.i + Int64(1))` and `SUM(i + 1)`.
fn same_words(name: &str, written: &str) -> bool {
    let (name, written) = (words(name), words(written));
    // For a star, the planner counts a constant.
    let counts = |words: &[String], what| matches!(words, [_, word] if word == what);
    name == written || counts(&written, "*") && counts(&name, "1") && name[0] == written[0]
}

/// Words, numbers and operators that characterize an expression.
fn words(text: &str) -> Vec<String> {
    /// Types that the planner writes around constants and in its own casts.
    const TYPES: [&str; 16] = [
        "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32",
        "float64", "utf8", "boolean", "double", "cast", "as", "try_cast",
    ];
    let text = &with_plain_decimals(text);
    let mut words: Vec<String> = Vec::new();
    let mut qualified = false;
    let mut rest = text.chars().peekable();
    while let Some(first) = rest.next() {
        let is_word = |c: &char| c.is_alphanumeric() || *c == '_';
        let is_space = first.is_whitespace() || matches!(first, '(' | ')' | '"' | '\'' | '`');
        if is_space {
            continue;
        }
        let mut word = first.to_lowercase().collect::<String>();
        if is_word(&first) {
            let number = first.is_ascii_digit();
            while let Some(c) = rest.next_if(|c| is_word(c) || number && *c == '.') {
                word.extend(c.to_lowercase());
            }
        }
        match word.as_str() {
            // The word before the dot was a table.
            "." => qualified = true,
            word if TYPES.contains(&word) => {}
            _ => {
                if std::mem::take(&mut qualified) {
                    words.pop();
                }
                words.push(word);
            }
        }
    }
    words
}

/// A planned name with decimals as they were written: `1.5` for `Decimal128(Some(15),2,1)`.
fn with_plain_decimals(name: &str) -> Cow<'_, str> {
    const BEGIN: &str = "Decimal128(Some(";
    let mut text = Cow::from(name);
    while let Some(at) = text.find(BEGIN) {
        let inner = &text[at + BEGIN.len()..];
        let decimal = inner.find(')').and_then(|end| {
            let (digits, rest) = (&inner[..end], inner[end + 1..].split_once(')')?.0);
            let scale = rest.rsplit_once(',')?.1.parse().ok()?;
            let length = BEGIN.len() + end + 1 + rest.len() + 1;
            Some((Decimal128Type::format_decimal(digits.parse().ok()?, 38, scale), length))
        });
        let Some((decimal, length)) = decimal else { break };
        text.to_mut().replace_range(at..at + length, &decimal);
    }
    text
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_planned_call_is_known_by_its_words() {
        for (planned, written) in [
            ("sum(t.i + Int64(10))", "SUM(i + 10)"),
            ("count(*)", "COUNT(*)"),
            ("count(Int64(1))", "COUNT(*)"),
            ("max(t.i) FILTER (WHERE t.i > Int64(5))", "MAX(i) FILTER (WHERE i > 5)"),
            (
                "sum(CASE WHEN t.s = Utf8(\"a\") THEN Float64(1.5) ELSE CAST(t.i AS Float64) END)",
                "SUM(CASE WHEN s = 'a' THEN 1.5 ELSE i END)",
            ),
            ("sum(t.a * (t.b + Int64(1)))", "SUM(t.a * (t.b + 1))"),
            (
                "sum(t.a * Decimal128(Some(15),2,1) - Decimal128(Some(25),2,2))",
                "SUM(a * 1.5 - 0.25)",
            ),
            ("sum(t.a * Utf8(\"1e3\"))", "SUM(a * CAST('1e3' AS DOUBLE))"),
        ] {
            assert!(same_words(planned, written), "{:?} and {:?}", words(planned), words(written));
        }
        for (planned, written) in [
            ("sum(t.i + Int64(10))", "SUM(i - 10)"),
            ("sum(t.i + Int64(10))", "SUM(i)"),
            ("sum(t.i + Int64(10))", "SUM(j + 10)"),
            ("count(t.i)", "COUNT(*)"),
            ("max(t.i) FILTER (WHERE t.i > Int64(5))", "MAX(i)"),
        ] {
            assert!(!same_words(planned, written), "{planned} and {written}");
        }
    }
}
