//! Words and names in statements that are Millstream's own, and in messages about them.

use crate::syntax::prelude::*;

/// Whether a token is this word, unquoted.
pub(crate) fn is_word(token: &Token, word: &str) -> bool {
    matches!(token, Token::Word(w) if w.quote_style.is_none() && w.value.eq_ignore_ascii_case(word))
}

/// Whether IF NOT EXISTS comes next, which is taken.
pub(crate) fn if_not_exists(parser: &mut Parser<'_>) -> Result<bool> {
    Ok(parser.parse_keywords(&[Keyword::IF, Keyword::NOT, Keyword::EXISTS]))
}

/// A name without a catalog or a database before it.
pub(crate) fn single_name(parser: &mut Parser<'_>) -> Result<Ident> {
    single_name_or(parser, |_| "write the table's name alone".to_string())
}

/// As [`single_name`]; `help` says what to do about a name of several parts.
pub(crate) fn single_name_or(
    parser: &mut Parser<'_>,
    help: impl FnOnce(&str) -> String,
) -> Result<Ident> {
    let start = parser.peek_token();
    let name = parser.parse_object_name(false)?;
    single_part(&name).ok_or_else(|| {
        SqlError::unsupported(format!("'{name}' names a database, and there are none"))
            .at(Span::new(start.span.union(&parser.get_current_token().span)))
            .help(help(&name.to_string()))
    })
}

/// The identifier of a name that has just one.
pub(crate) fn single_part(name: &ObjectName) -> Option<Ident> {
    match &name.0[..] {
        [part] => part.as_ident().cloned(),
        _ => None,
    }
}

/// Begins a message with a small letter, unless it begins with a keyword.
pub(crate) fn lower_first(text: &str) -> String {
    let mut chars = text.chars();
    match (chars.next(), text.chars().nth(1)) {
        (Some(_), Some(second)) if !second.is_lowercase() => text.to_string(),
        (Some(first), _) => first.to_lowercase().chain(chars).collect(),
        (None, _) => String::new(),
    }
}
