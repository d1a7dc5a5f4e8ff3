//! The places of a statement's parts in its text.

use datafusion_sql::sqlparser::ast::{
    self, FunctionArg, FunctionArgExpr, FunctionArguments, JoinConstraint, JoinOperator,
};
use datafusion_sql::sqlparser::tokenizer::{self, Location, TokenWithSpan};

use crate::syntax::calls::double_text;
use crate::syntax::prelude::*;

/// The expressions of a statement.
#[derive(Debug)]
pub(crate) struct Syntax {
    source: Arc<Source>,
    /// Outermost expressions.
    roots: Vec<SqlExpr>,
    /// Indices of the roots that are conditions of HAVING.
    having: HashSet<usize>,
    /// Of which of them each name is a part.
    named: HashMap<String, Vec<usize>>,
}

impl Syntax {
    /// Of a query as it was planned.
    pub(crate) fn of_query(query: &Query, source: &Arc<Source>) -> Syntax {
        struct Roots {
            found: Vec<SqlExpr>,
            /// Per query that we are in: how many expressions we are in.
            depth: Vec<usize>,
            /// The conditions of HAVING in the SELECTs so far, by address.
            conditions: HashSet<*const SqlExpr>,
            having: HashSet<usize>,
        }
        impl Visitor for Roots {
            type Break = ();
            fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
                self.depth.push(0);
                Continue(())
            }
            fn post_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
                self.depth.pop();
                Continue(())
            }
            fn pre_visit_select(&mut self, select: &ast::Select) -> ControlFlow<()> {
                self.conditions.extend(select.having.iter().map(std::ptr::from_ref));
                Continue(())
            }
            fn pre_visit_expr(&mut self, expr: &SqlExpr) -> ControlFlow<()> {
                if let Some(depth) = self.depth.last_mut() {
                    if *depth == 0 {
                        if self.conditions.contains(&std::ptr::from_ref(expr)) {
                            self.having.insert(self.found.len());
                        }
                        self.found.push(expr.clone());
                    }
                    *depth += 1;
                }
                Continue(())
            }
            fn post_visit_expr(&mut self, _: &SqlExpr) -> ControlFlow<()> {
                if let Some(depth) = self.depth.last_mut() {
                    *depth -= 1;
                }
                Continue(())
            }
        }
        let (found, depth, conditions, having) = Default::default();
        let mut roots = Roots { found, depth, conditions, having };
        let _ = query.walk(&mut roots);
        Syntax { having: roots.having, ..Syntax::new(source, roots.found) }
    }

    /// Syntax of a text: gives places in the text, but has no expressions.
    pub(crate) fn of_source(source: &Arc<Source>) -> Syntax {
        Syntax::new(source, vec![])
    }

    /// Of one expression.
    pub(crate) fn of_expr(expr: &SqlExpr, source: &Arc<Source>) -> Syntax {
        Syntax::new(source, vec![expr.clone()])
    }

    fn new(source: &Arc<Source>, roots: Vec<SqlExpr>) -> Syntax {
        let mut named: HashMap<String, Vec<usize>> = HashMap::new();
        for (i, root) in roots.iter().enumerate() {
            let _ = root.each_expr(|expr| {
                // Of a column's field, the column is looked for, too.
                let names = match expr {
                    SqlExpr::Identifier(name) => std::slice::from_ref(name),
                    SqlExpr::CompoundIdentifier(parts) => &parts[..],
                    _ => &[],
                };
                for name in names {
                    let roots = named.entry(name.value.clone()).or_default();
                    if roots.last() != Some(&i) {
                        roots.push(i);
                    }
                }
                ControlFlow::<()>::Continue(())
            });
        }
        Syntax { source: source.clone(), roots, having: HashSet::new(), named }
    }

    /// The expressions that are in no other, and whether each is the condition of a HAVING.
    pub(crate) fn roots(&self) -> impl Iterator<Item = (&SqlExpr, bool)> {
        (0..self.roots.len()).map(|root| self.root(root))
    }

    /// Roots that name a column `name`; `None` if there are no such roots.
    pub(crate) fn roots_with(&self, name: &str) -> Option<impl Iterator<Item = (&SqlExpr, bool)>> {
        Some(self.named.get(name)?.iter().map(|root| self.root(*root)))
    }

    fn root(&self, root: usize) -> (&SqlExpr, bool) {
        (&self.roots[root], self.having.contains(&root))
    }

    pub(crate) fn source(&self) -> &Arc<Source> {
        &self.source
    }

    /// The whole text of an expression: sqlparser's spans leave out brackets, and the names of what
    /// looks like a function and is none.
    pub(crate) fn span(&self, expr: &SqlExpr) -> Option<Span> {
        self.extent(expr).and_then(Span::new)
    }

    /// The same, as sqlparser has it.
    pub(crate) fn extent(&self, expr: &SqlExpr) -> Option<tokenizer::Span> {
        let (from, to) = self.range(expr)?;
        Some(self.source.tokens().get(from)?.span.union(&self.source.tokens().get(to)?.span))
    }

    /// The text of a range.
    pub(crate) fn text(&self, span: Span) -> String {
        self.source.slice(span)
    }

    /// Places an error that is about a keyword, and marks more than that, at the keyword.
    pub(crate) fn at_keyword(&self, mut error: SqlError) -> SqlError {
        let word = error.message.split(' ').next().unwrap_or_default().trim_end_matches('s');
        let Some(span) = error.span.filter(|_| word.len() > 1) else { return error };
        error.span = self.keyword(word, span).or(error.span);
        error
    }

    /// The first such keyword in a range.
    pub(crate) fn keyword(&self, word: &str, span: Span) -> Option<Span> {
        let within = |t: &&TokenWithSpan| {
            (span.line.into(), span.column.into()) <= order(t.span.start)
                && order(t.span.end) <= (span.end_line.into(), span.end_column.into())
        };
        let found = self.source.tokens().iter().filter(within).find(|t| {
            let Token::Word(found) = &t.token else { return false };
            found.keyword != Keyword::NoKeyword && found.value.to_uppercase() == word
        });
        found.and_then(|t| Span::new(t.span))
    }

    /// The first and the last token of an expression.
    fn range(&self, expr: &SqlExpr) -> Option<(usize, usize)> {
        match expr {
            SqlExpr::Nested(inner) => Some(self.in_brackets(self.range(inner)?)),
            SqlExpr::BinaryOp { left, right, .. } => {
                let (left, right) = (self.range(left)?, self.range(right)?);
                let whole = (left.0.min(right.0), left.1.max(right.1));
                // MOD(a, b) and CONCAT(a, b) are written as operators.
                let comma = self.source.tokens().get(left.1 + 1).map(|t| &t.token);
                Some(if comma == Some(&Token::Comma) { self.in_brackets(whole) } else { whole })
            }
            SqlExpr::UnaryOp { expr, .. } => {
                let (from, to) = self.range(expr)?;
                Some((from.checked_sub(1)?, to))
            }
            SqlExpr::Between { expr, high, .. } => Some((self.range(expr)?.0, self.range(high)?.1)),
            SqlExpr::InList { expr, list, .. } => {
                let open = self.range(list.first()?)?.0.checked_sub(1)?;
                Some((self.range(expr)?.0, self.closing(open)?))
            }
            SqlExpr::Function(call) => {
                let name = self.at(call.name.span().start)?;
                match self.source.tokens().get(name + 1).map(|t| &t.token) {
                    Some(Token::LParen) => Some((name, self.closing(name + 1)?)),
                    _ => Some((name, name)),
                }
            }
            SqlExpr::Cast { expr: of, .. } => {
                let (from, to) = self.range(of)?;
                if let Some(number) = double_text(expr)
                    && matches!(self.source.tokens().get(from)?.token, Token::Number(..))
                {
                    // It is written as a number with an exponent.
                    return Some((from.checked_sub(usize::from(number.starts_with('-')))?, to));
                }
                match self.source.tokens().get(to + 1).map(|t| &t.token) {
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
            SqlExpr::Interval(interval) => {
                let (from, to) = self.range(&interval.value)?;
                Some((from.checked_sub(1)?, to + usize::from(interval.leading_field.is_some())))
            }
            other => {
                let span = other.span();
                let own = self.at(span.start).zip(self.ending(span.end));
                let parts = parts(other).into_iter().filter_map(|part| self.range(part));
                let all = own.into_iter().chain(parts);
                all.reduce(|one, other| (one.0.min(other.0), one.1.max(other.1)))
            }
        }
    }

    /// Extends a range to the brackets around it, and the name before them if they are a call's.
    fn in_brackets(&self, (from, to): (usize, usize)) -> (usize, usize) {
        let open =
            from.checked_sub(1).filter(|at| self.source.tokens()[*at].token == Token::LParen);
        let close = self.source.tokens().get(to + 1).filter(|t| t.token == Token::RParen);
        let (Some(open), Some(_)) = (open, close) else { return (from, to) };
        let named = open.checked_sub(1).filter(|at| {
            matches!(
                &self.source.tokens()[*at].token,
                Token::Word(w) if matches!(w.keyword, Keyword::NoKeyword | Keyword::MOD)
            )
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
            match &self.source.tokens()[at].token {
                Token::RParen => depth += 1,
                Token::LParen if depth > 0 => depth -= 1,
                Token::LParen => {
                    if matches!(&self.source.tokens()[at.checked_sub(1)?].token, Token::Word(_)) {
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

    /// The closing bracket for the bracket at `open`.
    fn closing(&self, open: usize) -> Option<usize> {
        closing(self.source.tokens(), open)
    }

    /// The token that starts at a location.
    fn at(&self, start: Location) -> Option<usize> {
        self.source.tokens().binary_search_by(|t| order(t.span.start).cmp(&order(start))).ok()
    }

    /// The last token that ends at or before a location.
    fn ending(&self, end: Location) -> Option<usize> {
        self.source.tokens().partition_point(|t| order(t.span.end) <= order(end)).checked_sub(1)
    }
}

fn order(location: Location) -> (u64, u64) {
    (location.line, location.column)
}

/// The closing bracket for the bracket at `open`.
pub(crate) fn closing(tokens: &[TokenWithSpan], open: usize) -> Option<usize> {
    let mut depth = 0;
    for (at, token) in tokens.iter().enumerate().skip(open) {
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

/// The plain arguments of a call; none for `COUNT(*)`.
pub(crate) fn arguments(call: &ast::Function) -> Option<Vec<&SqlExpr>> {
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

/// The constraint of a join, for the supported kinds of joins with a constraint.
pub(crate) fn constraint(operator: &mut JoinOperator) -> Option<&mut JoinConstraint> {
    use JoinOperator::{
        FullOuter, Inner, Join, Left, LeftAnti, LeftOuter, LeftSemi, Right, RightOuter,
    };
    match operator {
        Join(constraint)
        | Inner(constraint)
        | Left(constraint)
        | LeftOuter(constraint)
        | Right(constraint)
        | RightOuter(constraint)
        | FullOuter(constraint)
        | LeftSemi(constraint)
        | LeftAnti(constraint) => Some(constraint),
        _ => None,
    }
}

/// Direct parts of an expression.
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
