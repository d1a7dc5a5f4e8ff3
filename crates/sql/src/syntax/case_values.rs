//! `CASE x WHEN 1, 2 THEN …`: several values with one result, which sqlparser does not read.

use datafusion_sql::sqlparser::ast::{CaseWhen, Expr, Value};
use datafusion_sql::sqlparser::parser::{Parser, ParserError};
use datafusion_sql::{
    sqlparser::ast::helpers::attached_token::AttachedToken, sqlparser::keywords::Keyword,
    sqlparser::tokenizer::Token,
};

/// Reads a `CASE` that compares a value, if one comes next.
pub(crate) fn parse_case(parser: &mut Parser) -> Option<Result<Expr, ParserError>> {
    let searches = matches!(&parser.peek_nth_token_ref(1).token,
        Token::Word(word) if word.keyword == Keyword::WHEN);
    (parser.peek_keyword(Keyword::CASE) && !searches).then(|| read(parser))
}

fn read(parser: &mut Parser) -> Result<Expr, ParserError> {
    let case_token = AttachedToken(parser.next_token());
    let operand = parser.parse_expr()?;
    parser.expect_keyword_is(Keyword::WHEN)?;
    let mut arms = vec![];
    loop {
        let values = parser.parse_comma_separated(Parser::parse_expr)?;
        parser.expect_keyword_is(Keyword::THEN)?;
        arms.push((values, parser.parse_expr()?));
        if !parser.parse_keyword(Keyword::WHEN) {
            break;
        }
    }
    let otherwise = match parser.parse_keyword(Keyword::ELSE) {
        true => Some(Box::new(parser.parse_expr()?)),
        false => None,
    };
    let end_token = AttachedToken(parser.expect_keyword(Keyword::END)?);
    let case = |operand, conditions, else_result| Expr::Case {
        case_token: case_token.clone(),
        end_token: end_token.clone(),
        operand: Some(Box::new(operand)),
        conditions,
        else_result,
    };
    let arm = |(condition, result)| CaseWhen { condition, result };
    if arms.iter().all(|(values, result)| values.len() == 1 || is_leaf(result)) {
        let mut each = vec![];
        for (mut values, result) in arms {
            let last = values.pop();
            each.extend(values.into_iter().map(|value| arm((value, result.clone()))));
            each.extend(last.map(|value| arm((value, result))));
        }
        return Ok(case(operand, each, otherwise));
    }
    // One CASE gives the number of the list that has the value, the other the result of that
    // number. Written once for each value, results within each other would grow exponentially.
    let number = |at: usize| Expr::value(Value::Number(at.to_string(), false));
    let (mut lists, mut results) = (vec![], vec![]);
    for (at, (values, result)) in arms.into_iter().enumerate() {
        lists.extend(values.into_iter().map(|value| arm((value, number(at)))));
        results.push(arm((number(at), result)));
    }
    Ok(case(case(operand, lists, None), results, otherwise))
}

fn is_leaf(expr: &Expr) -> bool {
    use Expr::{CompoundIdentifier, Identifier, TypedString, Value};
    matches!(expr, Value(_) | TypedString(_) | Identifier(_) | CompoundIdentifier(_))
}
