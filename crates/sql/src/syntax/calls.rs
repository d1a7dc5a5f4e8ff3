//! Calls and constants of a syntax tree, made by hand.

use datafusion_sql::sqlparser::ast::{
    DataType, ExactNumberInfo, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList,
    FunctionArguments, Ident, ObjectName, ObjectNamePart, Value,
};

/// The function that makes a map: `MAP[…]`, as a call.
pub(crate) const MAP: &str = "map";

/// Function name for `TABLE t PARTITION BY k, …`, as a call of the table and the columns.
pub(crate) const PARTITIONED: &str = "$partitioned";

/// `x IS JSON kind`, as a call of the text and the kind.
pub(crate) const IS_JSON: &str = "$is_json";

/// `JSON_OBJECT`, as a call of texts and values.
pub(crate) const JSON_OBJECT: &str = "$json_object";

/// `JSON_ARRAY`, as a call of texts and values.
pub(crate) const JSON_ARRAY: &str = "$json_array";

/// Says of a value of these that it is JSON already.
pub(crate) const JSON_IS_JSON: &str = "JSON";

/// Prefix of the text of a default of `JSON_VALUE`.
pub(crate) const DEFAULT: &str = "DEFAULT ";

/// The number with an exponent that a cast stands for.
pub(crate) fn double_text(expr: &Expr) -> Option<&str> {
    let Expr::Cast { expr, data_type: DataType::Double(ExactNumberInfo::None), .. } = expr else {
        return None;
    };
    match value_of(expr)? {
        Value::SingleQuotedString(text) => Some(text),
        _ => None,
    }
}

/// The constant that an expression is.
pub(crate) fn value_of(expr: &Expr) -> Option<&Value> {
    match expr {
        Expr::Value(value) => Some(&value.value),
        _ => None,
    }
}

/// The digits of a number as it is written.
pub(crate) fn number_of(expr: &Expr) -> Option<&str> {
    match value_of(expr)? {
        Value::Number(digits, _) => Some(digits),
        _ => None,
    }
}

/// The parts of a column's name; none of another expression.
pub(crate) fn path_of(expr: &Expr) -> &[Ident] {
    match expr {
        Expr::Identifier(name) => std::slice::from_ref(name),
        Expr::CompoundIdentifier(path) => path,
        _ => &[],
    }
}

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
