//! Guesses of the meaning, or a better place, for mistakes that many people make.

use datafusion_sql::sqlparser::ast::{GroupByExpr, OrderByKind, TableAlias};

use crate::expr::{aggregates::aggregate_named, wording::same_name};
use crate::stages::{joins::using, ranking::FORM};
use crate::syntax::prelude::*;
use crate::syntax::tree::{Syntax, parts};
use crate::syntax::words::single_part;

/// An error in one of the SELECTs of a query, with what there is to say about it.
pub(crate) fn hint(
    error: SqlError,
    query: &Query,
    selects: &[Select],
    syntax: &Syntax,
) -> SqlError {
    let place = position(&error, query, selects);
    let error = if place.is_some() { error.at(place) } else { error };
    let error = in_with(error, query);
    let error = at_call(error, syntax);
    selects.iter().fold(error, |error, select| {
        let error = misplaced_aggregate(error, select, syntax);
        let error = ungrouped_column(error, select, syntax);
        let error = same_names(error, select);
        let error = same_relations(error, select);
        let error = unknown_table(error, select);
        let error = column_of_using(error, select);
        unknown_column(error, select, syntax)
    })
}

/// A call that an error speaks of first, `ROW_NUMBER needs …`, where nothing else has placed it.
fn at_call(error: SqlError, syntax: &Syntax) -> SqlError {
    let first = error.message.split([' ', '(']).next().unwrap_or_default();
    let is_second = error.message.starts_with("a SELECT with several rankings");
    let is_name = first.len() > 1 && first.chars().all(|c| c.is_ascii_uppercase() || c == '_');
    if error.span.is_some() || !(is_name || is_second) {
        return error;
    }
    let within = error.message.ends_with("stands beside aggregates, not within them");
    let argument = error.message.split_once("takes keys of the GROUP BY, and ");
    let argument = argument.and_then(|(_, rest)| rest.strip_suffix(" is none"));
    let mut ranked = 0;
    let mut spoken_of = |expr: &SqlExpr| {
        let SqlExpr::Function(call) = expr else { return false };
        ranked += usize::from(call.over.is_some());
        if is_second {
            return call.over.is_some() && ranked == 2;
        }
        let has = |argument: &str| parts(expr).iter().any(|part| part.to_string() == argument);
        call.name.to_string().trim_start_matches('$').eq_ignore_ascii_case(first)
            && argument.is_none_or(has)
    };
    let mut found = None;
    for (root, _) in syntax.roots() {
        let root = if within { aggregate_in(root, 1) } else { Some(root) };
        let _ = root.map(|root| {
            root.each_expr(|expr| match spoken_of(expr) {
                true => {
                    found = syntax.span(expr);
                    Break(())
                }
                false => Continue(()),
            })
        });
        if found.is_some() {
            break;
        }
    }
    error.at(found)
}

/// A mistake in a WITH, or a name that one of its queries has, or nearly so.
fn in_with(error: SqlError, query: &Query) -> SqlError {
    let ctes = || query.with.iter().flat_map(|with| &with.cte_tables).map(|cte| &cte.alias);
    if error.message.starts_with("a WITH with names for ") {
        let with_names = |alias: &&TableAlias| !alias.columns.is_empty();
        let mut named = ctes().filter(with_names);
        return match (named.next(), named.next()) {
            (Some(alias), None) => error.at(Span::new(alias.name.span)),
            _ => error,
        };
    }
    if !error.message.starts_with("there is no table") {
        return error;
    }
    let name = quoted(&error);
    let names = || ctes().map(|alias| alias.name.value.as_str());
    let help = match closest(name, names()) {
        _ if names().any(|other| other == name) => {
            format!("WITH defines '{name}' only after this: a query sees those before it")
        }
        Some(meant) => format!("did you mean '{meant}'?"),
        None => return error,
    };
    SqlError { help: Some(help), ..error }
}

/// Text between the first quotes of an error's message.
fn quoted(error: &SqlError) -> &str {
    error.message.split('\'').nth(1).unwrap_or_default()
}

/// Where the number of a column stands that an error is about.
fn position(error: &SqlError, query: &Query, selects: &[Select]) -> Option<Span> {
    let numbered = |clause: &str| error.message.strip_prefix(clause)?.split(':').next();
    if let Some(number) = numbered("GROUP BY ") {
        let keys = selects.iter().filter_map(|select| match &select.group_by {
            GroupByExpr::Expressions(keys, _) => Some(keys),
            GroupByExpr::All(_) => None,
        });
        let key = keys.flatten().find(|key| key.to_string() == number)?;
        return Span::new(key.span());
    }
    let number = numbered("ORDER BY ")?;
    let OrderByKind::Expressions(keys) = &query.order_by.as_ref()?.kind else { return None };
    let key = keys.iter().find(|key| key.expr.to_string() == number)?;
    Span::new(key.expr.span())
}

fn misplaced_aggregate(error: SqlError, select: &Select, syntax: &Syntax) -> SqlError {
    let starts = |text: &str| error.message.starts_with(text);
    if starts("an aggregate cannot stand in WHERE") {
        let found = select.selection.as_ref().and_then(|s| aggregate_in(s, 1));
        return error.at(found.and_then(|e| syntax.span(e)));
    }
    if starts("HAVING goes with") {
        return error.at(select.having.as_ref().and_then(|h| syntax.span(h)));
    }
    if starts("an aggregate cannot stand within") {
        let found = expressions(select).into_iter().find_map(|e| aggregate_in(e, 2));
        return SqlError { span: found.and_then(|e| syntax.span(e)).or(error.span), ..error };
    }
    error
}

fn ungrouped_column(error: SqlError, select: &Select, syntax: &Syntax) -> SqlError {
    if !error.message.contains("neither in GROUP BY") || error.span.is_some() {
        return error;
    }
    let items = expressions(select);
    if let Some(found) = items.into_iter().find_map(|e| column_in(e, quoted(&error))) {
        return error.at(syntax.span(found));
    }
    match select.projection.iter().find(|item| is_star(item)) {
        Some(star) => {
            let help = "with GROUP BY, name the columns instead of writing *";
            SqlError { help: Some(help.into()), ..error }.at(Span::new(star.span()))
        }
        None => error,
    }
}

/// Two columns of a result that have the same name: which, and where the second stands.
fn same_names(error: SqlError, select: &Select) -> SqlError {
    let names: Vec<_> = select.projection.iter().filter_map(name_of).collect();
    let again = |name: &&&Ident| {
        names
            .iter()
            .take_while(|other| !std::ptr::eq(**other, **name))
            .any(|o| o.value == name.value)
    };
    let star = select.projection.iter().any(is_star);
    let ambiguous = error.message.ends_with("' is ambiguous") && error.span.is_none();
    let same = error.message.starts_with("two columns of the result have the same name");
    if !(same || ambiguous && star) {
        return error;
    }
    // `*` may have a column of that name, too.
    let starred = || names.iter().find(|name| star && name.value == quoted(&error));
    match names.iter().find(again).or_else(starred) {
        Some(second) => same_name(&second.value).at(Span::new(second.span)),
        None => error,
    }
}

/// Two columns that have the same name, as two tables do.
fn same_relations(error: SqlError, select: &Select) -> SqlError {
    if !error.message.starts_with("there are two columns named") || error.span.is_some() {
        return error;
    }
    let items = select.from.iter();
    let relations = items.flat_map(|item| {
        std::iter::once(&item.relation).chain(item.joins.iter().map(|j| &j.relation))
    });
    let mut known: Vec<String> = Vec::new();
    for relation in relations {
        let Some(name) = relation_name(relation) else { continue };
        if known.contains(&name.value) {
            let message = format!("two tables of this FROM are called '{}'", name.value);
            return SqlError::name(message)
                .at(Span::new(name.span))
                .help("give them different aliases: t AS a JOIN t AS b");
        }
        known.push(name.value.clone());
    }
    error
}

/// Qualifier of a relation's columns.
fn relation_name(relation: &TableFactor) -> Option<Ident> {
    match relation {
        TableFactor::Table { alias: Some(alias), .. }
        | TableFactor::Derived { alias: Some(alias), .. } => Some(alias.name.clone()),
        TableFactor::Table { name, args: None, .. } => single_part(name),
        _ => None,
    }
}

fn unknown_table(error: SqlError, select: &Select) -> SqlError {
    if !error.message.starts_with("there is no table") || error.span.is_some() {
        return error;
    }
    let name = select.projection.iter().find_map(|item| match item {
        SelectItem::QualifiedWildcard(name, _) => {
            Some(name).filter(|n| n.to_string().trim_end_matches(".*") == quoted(&error))
        }
        _ => None,
    });
    error.at(name.and_then(|name| Span::new(name.span())))
}

/// A column of USING that one of the sides has not.
fn column_of_using(error: SqlError, select: &Select) -> SqlError {
    if !error.message.starts_with("there is no column") || error.span.is_some() {
        return error;
    }
    let mut names = select.from.iter().flat_map(|table| &table.joins).flat_map(using);
    let name = names.find(|name| single_part(name).is_some_and(|n| n.value == quoted(&error)));
    let place = name.and_then(|name| Span::new(name.span()));
    error.at(place)
}

/// A text in double quotes, or an alias where there are none.
fn unknown_column(error: SqlError, select: &Select, syntax: &Syntax) -> SqlError {
    if !error.message.starts_with("there is no column") {
        return error;
    }
    let Some(span) = error.span else { return error };
    let name = quoted(&error);
    let helped = |help: String| SqlError { help: Some(help), ..error.clone() };
    if syntax.text(span).starts_with('"') {
        return helped(format!("a string stands in single quotes: '{name}'"));
    }
    let alias = select.projection.iter().find_map(|item| match item {
        SelectItem::ExprWithAlias { expr, alias } if alias.value == name => Some(expr),
        _ => None,
    });
    let Some(expr) = alias else { return error };
    let within = |other: &SqlExpr| {
        syntax.span(other).is_some_and(|other| {
            (other.line, other.column) <= (span.line, span.column)
                && (span.end_line, span.end_column) <= (other.end_line, other.end_column)
        })
    };
    if select.selection.as_ref().is_some_and(within) {
        if matches!(expr, SqlExpr::Function(call) if call.over.is_some()) {
            return helped(FORM.to_string());
        }
        return helped(format!("WHERE does not know the aliases of SELECT: write {expr}"));
    }
    if items(select).any(within) {
        return helped(format!("an alias is not known within its own SELECT: write {expr}"));
    }
    error
}

fn is_star(item: &SelectItem) -> bool {
    matches!(item, SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..))
}

/// Name of a result column as written in the text.
fn name_of(item: &SelectItem) -> Option<&Ident> {
    match item {
        SelectItem::ExprWithAlias { alias, .. } => Some(alias),
        SelectItem::UnnamedExpr(SqlExpr::Identifier(name)) => Some(name),
        SelectItem::UnnamedExpr(SqlExpr::CompoundIdentifier(path)) => path.last(),
        _ => None,
    }
}

/// The first aggregate call that stands within `depth - 1` others.
fn aggregate_in(expr: &SqlExpr, depth: usize) -> Option<&SqlExpr> {
    let left = match expr {
        SqlExpr::Function(call)
            if aggregate_named(&call.name.to_string().to_lowercase()).is_some() =>
        {
            depth - 1
        }
        _ => depth,
    };
    if left == 0 {
        return Some(expr);
    }
    parts(expr).into_iter().find_map(|part| aggregate_in(part, left))
}

/// A column of that name outside aggregates.
fn column_in<'e>(expr: &'e SqlExpr, name: &str) -> Option<&'e SqlExpr> {
    match expr {
        SqlExpr::Identifier(column) if column.value == name => return Some(expr),
        SqlExpr::CompoundIdentifier(path) if path.last().is_some_and(|p| p.value == name) => {
            return Some(expr);
        }
        SqlExpr::Function(call)
            if aggregate_named(&call.name.to_string().to_lowercase()).is_some() =>
        {
            return None;
        }
        _ => {}
    }
    parts(expr).into_iter().find_map(|part| column_in(part, name))
}

fn items(select: &Select) -> impl Iterator<Item = &SqlExpr> {
    select.projection.iter().filter_map(|item| match item {
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => Some(expr),
        _ => None,
    })
}

/// Expressions that a SELECT computes of its input columns.
pub(crate) fn expressions(select: &Select) -> Vec<&SqlExpr> {
    let keys = match &select.group_by {
        GroupByExpr::Expressions(keys, _) => &keys[..],
        GroupByExpr::All(_) => &[],
    };
    items(select).chain(&select.selection).chain(keys).chain(&select.having).collect()
}
