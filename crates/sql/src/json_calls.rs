//! What is wrong with a call of `JSON_VALUE` or `JSON_EXISTS`, before it is planned.

use datafusion_sql::sqlparser::ast::{Expr, Function, Spanned};

use crate::calls::DEFAULT;
use crate::error::{Result, Span, SqlError};
use crate::json_syntax::{EXISTS, VALUE, constant};
use crate::scalars::{JsonPath, fits, returned_type};

/// Refuses a call of JSON_VALUE or JSON_EXISTS with a wrong path or clause.
pub(crate) fn check(call: &Function, args: &[Expr]) -> Result<()> {
    let name = call.name.to_string().to_uppercase();
    let at = |expr: &Expr| Span::new(expr.span()).or(Span::new(call.name.span()));
    let takes = format!("write for example {name}(x, '$.a.b[0]')");
    let (Some(path), true) =
        (args.get(1), matches!((&*name, args.len()), (_, 2) | (VALUE, 5) | (EXISTS, 3)))
    else {
        let message = format!("{name} takes a text and a path");
        return Err(SqlError::types(message).at(Span::new(call.name.span())).help(takes));
    };
    let Some(Some(text)) = constant(path).filter(|_| !matches!(path, Expr::UnaryOp { .. })) else {
        let message = format!("the path of {name} must be a text in quotes");
        return Err(SqlError::unsupported(message).at(at(path)).help(takes));
    };
    JsonPath::parse(&text).map_err(|wrong| {
        SqlError::types(format!("{text} is no path: {wrong}"))
            .at(at(path))
            .help("write for example '$.a.b[0]', or '$[''a b'']' for other names")
    })?;
    let clause = |at: usize| args.get(at).and_then(constant).flatten().unwrap_or_default();
    if name == VALUE && args.len() == 5 {
        let returning = clause(2);
        let Some(data_type) = returned_type(&returning) else {
            return Err(SqlError::types(format!("JSON_VALUE does not return {returning}"))
                .at(Span::new(call.name.span()))
                .help(format!(
                    "it returns STRING, BOOLEAN, INT, BIGINT or DOUBLE; write for example \
                     CAST(JSON_VALUE(x, '$.a') AS {returning})"
                )));
        };
        for on in [clause(3), clause(4)] {
            if let Some(default) = on.strip_prefix(DEFAULT).filter(|text| !fits(text, &data_type)) {
                return Err(SqlError::types(format!("the default {default} is no {returning}"))
                    .at(Span::new(call.name.span()))
                    .help(format!("write a default that is of type {returning}")));
            }
        }
    }
    Ok(())
}
