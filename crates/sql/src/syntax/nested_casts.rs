//! Refuses a CAST to a type that is made of others, before the statement is parsed: sqlparser reads
//! some of these types and stumbles over others, and none of the casts is computed.

use crate::syntax::prelude::*;

use datafusion_sql::sqlparser::tokenizer::TokenWithSpan;

/// Words with which such a type begins or ends.
const MADE_OF_OTHERS: [&str; 5] = ["ROW", "ARRAY", "MAP", "MULTISET", "STRUCT"];

/// Refuses `CAST(… AS ROW<…>)` and the like, also with TRY_CAST. The tokens have no white space.
pub(crate) fn refuse_nested_casts(tokens: &[TokenWithSpan]) -> Result<()> {
    // By bracket that is open: of a cast, where its type begins, once that is known.
    let mut open: Vec<Option<usize>> = Vec::new();
    let mut before = Keyword::NoKeyword;
    for (at, token) in tokens.iter().enumerate() {
        let is_cast = matches!(before, Keyword::CAST | Keyword::TRY_CAST);
        before = keyword(token);
        match &token.token {
            Token::LParen => open.push(is_cast.then_some(tokens.len())),
            Token::LBracket => open.push(None),
            Token::RParen | Token::RBracket => {
                if let Some(Some(from)) = open.pop() {
                    refuse_type(tokens.get(from..at).unwrap_or_default())?;
                }
            }
            _ if before == Keyword::AS => {
                if let Some(Some(from)) = open.last_mut() {
                    *from = at + 1;
                }
            }
            _ => {}
        }
    }
    Ok(())
}

fn refuse_type(of_cast: &[TokenWithSpan]) -> Result<()> {
    let (Some(first), Some(last)) = (of_cast.first(), of_cast.last()) else { return Ok(()) };
    if !is_made_of_others(first) && !is_made_of_others(last) && last.token != Token::RBracket {
        return Ok(());
    }
    Err(SqlError::unsupported("a CAST to ROW, ARRAY or MAP does not run here")
        .at(Span::new(first.span.union(&last.span)))
        .help(
            "cast what it is made of: ROW(CAST(r.a AS INT), …), ARRAY[CAST(a[1] AS INT), …]; a \
             file's column may be declared with this type in CREATE TABLE",
        ))
}

fn keyword(token: &TokenWithSpan) -> Keyword {
    match &token.token {
        Token::Word(word) if word.quote_style.is_none() => word.keyword,
        _ => Keyword::NoKeyword,
    }
}

fn is_made_of_others(token: &TokenWithSpan) -> bool {
    let made = |word: &str| MADE_OF_OTHERS.iter().any(|made| word.eq_ignore_ascii_case(made));
    matches!(&token.token, Token::Word(word) if word.quote_style.is_none() && made(&word.value))
}
