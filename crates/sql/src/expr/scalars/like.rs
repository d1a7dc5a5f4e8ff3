//! `LIKE` without `ESCAPE`: a backslash is an ordinary character. In DataFusion's it is the escape
//! character.

use crate::syntax::prelude::*;

use datafusion_expr::expr::Like;

/// Doubles the backslashes of computed patterns; constant patterns have them doubled already.
pub(super) fn plain_backslashes(expr: Expr, schema: &DFSchema) -> DfResult<Expr> {
    let doubled = expr.changed_up(|e| match e {
        Expr::Like(like) if is_computed_text(&like.pattern, schema)? => {
            let replace = super::strings::replace_function();
            let pattern = replace.call(vec![*like.pattern, lit("\\"), lit("\\\\")]);
            Ok(Transformed::yes(Expr::Like(Like { pattern: Box::new(pattern), ..like })))
        }
        other => Ok(Transformed::no(other)),
    })?;
    Ok(doubled.data)
}

fn is_computed_text(pattern: &Expr, schema: &DFSchema) -> DfResult<bool> {
    Ok(!matches!(pattern, Expr::Literal(..)) && pattern.get_type(schema)?.is_string())
}
