//! `array[1]`, `map['key']` and `(row).field` become calls of functions that cannot be written in
//! SQL ([`FIELD`] and [`ITEM`]), and what is selected without a name of its own gets one. Fields by
//! dots alone, as in `t.row.field`, are names, which the planner resolves.

use datafusion_sql::sqlparser::ast::{AccessExpr, Expr, ObjectNamePart, Subscript};

use crate::syntax::calls::{function, string};
use crate::syntax::prelude::*;

/// `row.name`, as a call: the row, and the field's name as a text. It cannot be written in SQL.
pub(crate) const FIELD: &str = "$field";
/// `array[number]` and `map[key]`, as a call. It cannot be written in SQL.
pub(crate) const ITEM: &str = "$item";

/// Rewrites an access by brackets, or to a field of something in brackets.
pub(crate) fn rewrite_access(root: &Expr, chain: &[AccessExpr]) -> Result<Expr> {
    let mut names: Vec<Ident> = match root {
        Expr::Identifier(name) => vec![name.clone()],
        Expr::CompoundIdentifier(names) => names.clone(),
        _ => vec![],
    };
    let mut rest = chain;
    while let (false, [AccessExpr::Dot(Expr::Identifier(name)), others @ ..]) =
        (names.is_empty(), rest)
    {
        names.push(name.clone());
        rest = others;
    }
    let mut of = match &names[..] {
        [] => root.clone(),
        [name] => Expr::Identifier(name.clone()),
        _ => Expr::CompoundIdentifier(names),
    };
    for access in rest {
        of = match access {
            AccessExpr::Dot(Expr::Identifier(name)) => {
                let text = string(&name.value);
                function(name, FIELD, vec![of, text])
            }
            AccessExpr::Dot(other) => {
                let message = format!("expected the name of a field, found {other}");
                return Err(SqlError::syntax(message)
                    .at(Span::new(other.span()))
                    .help("write for example array[1].field"));
            }
            AccessExpr::Subscript(Subscript::Index { index }) => {
                let place = Ident { span: of.span(), ..Ident::new(ITEM) };
                function(&place, ITEM, vec![of, index.clone()])
            }
            AccessExpr::Subscript(Subscript::Slice { .. }) => {
                return Err(SqlError::unsupported("a part of an array does not run here")
                    .at(Span::new(of.span()))
                    .help("write array[1] for one element"));
            }
        };
    }
    Ok(of)
}

/// Whether names by dots are a field of a column, rather than a column of a table of the SELECT.
pub(crate) fn is_field(names: &[Ident], select: &Select) -> bool {
    match names {
        [] | [_] => false,
        [table, _] => !select.from.iter().any(|from| {
            let joined = from.joins.iter().map(|join| &join.relation);
            std::iter::once(&from.relation).chain(joined).any(|of| is_called(of, &table.value))
        }),
        _ => true,
    }
}

/// Whether a table of FROM has that name.
fn is_called(table: &TableFactor, name: &str) -> bool {
    let (own, alias) = match table {
        TableFactor::Table { name, args: None, alias, .. } => (name.0.last(), alias),
        TableFactor::Table { alias, .. }
        | TableFactor::Derived { alias, .. }
        | TableFactor::TableFunction { alias, .. } => (None, alias),
        TableFactor::NestedJoin { table_with_joins: of, .. } => {
            let joined = of.joins.iter().map(|join| &join.relation);
            return std::iter::once(&of.relation).chain(joined).any(|of| is_called(of, name));
        }
        _ => (None, &None),
    };
    match (alias, own) {
        (Some(alias), _) => alias.name.value == name,
        (None, Some(ObjectNamePart::Identifier(own))) => own.value == name,
        // A table function shows the columns of the table that it is given, with its name.
        (None, None) => {
            matches!(&table, TableFactor::TableFunction { .. } | TableFactor::Table { .. })
                && names_table(table, name)
        }
        _ => false,
    }
}

/// Whether a table function's first argument is the table of that name.
fn names_table(table: &TableFactor, name: &str) -> bool {
    let text = table.to_string();
    text.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == name)
}
