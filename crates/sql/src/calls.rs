//! Calls and constants of a syntax tree, made by hand.

use datafusion_sql::sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList, FunctionArguments, Ident,
    ObjectName, ObjectNamePart, Value,
};

/// The function that makes a map: `MAP[…]`, as a call.
pub(crate) const MAP: &str = "map";

/// What stands for `TABLE t PARTITION BY k, …`: a call with the table and the columns.
pub(crate) const PARTITIONED: &str = "$partitioned";

/// `x IS JSON kind`, as a call of the text and the kind.
pub(crate) const IS_JSON: &str = "$is_json";

/// What stands before the text of a default of `JSON_VALUE`.
pub(crate) const DEFAULT: &str = "DEFAULT ";

/// A text in quotes.
pub(crate) fn string(text: &str) -> Expr {
    Expr::value(Value::SingleQuotedString(text.to_string()))
}

/// A call of `name` at the place of `old`.
pub(crate) fn function(old: &Ident, name: &str, args: Vec<Expr>) -> Expr {
    let name = Ident { value: name.to_string(), quote_style: None, span: old.span };
    let args = args.into_iter().map(|a| FunctionArg::Unnamed(FunctionArgExpr::Expr(a))).collect();
    Expr::Function(Function {
        name: ObjectName(vec![ObjectNamePart::Identifier(name)]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList {
            duplicate_treatment: None,
            args,
            clauses: vec![],
        }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: vec![],
    })
}
