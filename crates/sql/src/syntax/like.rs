//! `CREATE TABLE t (…) WITH (…) LIKE other (INCLUDING …, EXCLUDING …, OVERWRITING …)`, as in Flink.
//!
//! A table takes the physical columns of the other one, and of the rest what the options say. What
//! both have is an error, unless the option is OVERWRITING. Without options, all is taken, and of
//! options (`WITH`) that both have its own count.
//!
//! | | taken by default | EXCLUDING | OVERWRITING |
//! |---|---|---|---|
//! | `GENERATED`: computed columns | yes | yes | yes |
//! | `METADATA`: metadata columns | yes | yes | yes |
//! | `WATERMARKS` | yes | yes | yes |
//! | `OPTIONS` | yes, OVERWRITING | yes | yes |
//! | `CONSTRAINTS`: the primary key | yes | yes | |
//! | `PARTITIONS`, `DISTRIBUTION` | there are none | accepted | |

use crate::syntax::prelude::*;
use crate::syntax::words::{is_word, single_name};

/// `LIKE table (…)`.
#[derive(Debug, Clone)]
pub(crate) struct Like {
    pub(crate) table: Ident,
    pub(crate) generated: Merge,
    pub(crate) metadata: Merge,
    pub(crate) options: Merge,
    pub(crate) watermarks: Merge,
    pub(crate) constraints: Merge,
}

/// Treatment of a property of the other table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Merge {
    Including,
    Excluding,
    Overwriting,
}

/// Properties named by options.
const WHAT: &str =
    "ALL, GENERATED, OPTIONS, WATERMARKS, CONSTRAINTS, PARTITIONS, DISTRIBUTION, METADATA";

/// Properties that a table may replace.
const OVERWRITTEN: [&str; 4] = ["GENERATED", "METADATA", "OPTIONS", "WATERMARKS"];

const FORM: &str = "write LIKE table (EXCLUDING OPTIONS OVERWRITING WATERMARKS)";

/// Parses what may stand at the end of a `CREATE TABLE`.
pub(crate) fn parse_like(parser: &mut Parser<'_>) -> Result<Option<Like>> {
    if !parser.parse_keyword(Keyword::LIKE) {
        return Ok(None);
    }
    let table = single_name(parser)?;
    let (mut all, mut own) = (None, Vec::new());
    if parser.consume_token(&Token::LParen) {
        while !parser.consume_token(&Token::RParen) {
            let (merge, what, span) = parse_option(parser)?;
            let given = own.iter().any(|(_, known)| *known == what);
            if given || what == "ALL" && all.is_some() {
                return Err(SqlError::syntax(format!("{what} is given twice")).at(span).help(FORM));
            }
            match what {
                "ALL" => all = Some(merge),
                what => own.push((merge, what)),
            }
            // Flink has no commas here; people write them.
            let _ = parser.consume_token(&Token::Comma);
        }
    }
    let merge = |what: &str, default: Merge| {
        let own = own.iter().find(|(_, known)| *known == what);
        own.map_or(all.unwrap_or(default), |(merge, _)| *merge)
    };
    Ok(Some(Like {
        generated: merge("GENERATED", Merge::Including),
        metadata: merge("METADATA", Merge::Including),
        options: merge("OPTIONS", Merge::Overwriting),
        watermarks: merge("WATERMARKS", Merge::Including),
        constraints: merge("CONSTRAINTS", Merge::Including),
        table,
    }))
}

fn parse_option(parser: &mut Parser<'_>) -> Result<(Merge, &'static str, Option<Span>)> {
    let first = parser.next_token();
    let merges = [
        ("INCLUDING", Merge::Including),
        ("EXCLUDING", Merge::Excluding),
        ("OVERWRITING", Merge::Overwriting),
    ];
    let Some((_, merge)) = merges.into_iter().find(|(word, _)| is_word(&first.token, word)) else {
        let error = SqlError::syntax(format!(
            "expected INCLUDING, EXCLUDING or OVERWRITING, found {first}"
        ));
        return Err(error.at(Span::new(first.span)).help(FORM));
    };
    let second = parser.next_token();
    let span = Span::new(first.span.union(&second.span));
    let Some(what) = WHAT.split(", ").find(|what| is_word(&second.token, what)) else {
        let error =
            SqlError::syntax(format!("expected {WHAT}, found {second}")).at(Span::new(second.span));
        let written = second.token.to_string();
        return Err(match closest(&written, WHAT.split(", ")) {
            Some(meant) => error.help(format!("did you mean {meant}?")),
            None => error.help(FORM),
        });
    };
    if merge == Merge::Overwriting && !OVERWRITTEN.contains(&what) {
        return Err(SqlError::unsupported(format!("OVERWRITING {what} does not exist"))
            .at(span)
            .help(format!("write INCLUDING {what} or EXCLUDING {what}")));
    }
    Ok((merge, what, span))
}
