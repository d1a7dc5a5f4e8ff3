//! The text from which statements come, and ranges of it.

use std::{ops::Range, sync::OnceLock};

use datafusion_sql::sqlparser::tokenizer::{self, Token, TokenWithSpan, Tokenizer};

use crate::syntax::dialect::MillstreamDialect;
use crate::syntax::masked::masked;

/// A range of the text: lines and columns count from 1, columns in characters; the end is
/// exclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Span {
    /// First line.
    pub line: u32,
    /// First column.
    pub column: u32,
    /// Last line.
    pub end_line: u32,
    /// The column after the last one.
    pub end_column: u32,
}

impl Span {
    /// A parser's span; `None` if it is empty, which stands for "unknown".
    pub(crate) fn new(span: tokenizer::Span) -> Option<Span> {
        Span::between((span.start.line, span.start.column), (span.end.line, span.end.column))
    }

    pub(crate) fn between(start: (u64, u64), end: (u64, u64)) -> Option<Span> {
        let number = |n: u64| u32::try_from(n).ok();
        (start.0 > 0).then_some(())?;
        Some(Span {
            line: number(start.0)?,
            column: number(start.1)?.max(1),
            end_line: number(end.0)?,
            end_column: number(end.1)?,
        })
    }

    /// Whether `other` lies within this span.
    pub(crate) fn holds(self, other: Span) -> bool {
        let (start, end) = ((self.line, self.column), (self.end_line, self.end_column));
        start <= (other.line, other.column) && (other.end_line, other.end_column) <= end
    }
}

impl From<datafusion_common::Span> for Span {
    fn from(s: datafusion_common::Span) -> Span {
        let start = (s.start.line, s.start.column);
        Span::between(start, (s.end.line, s.end.column)).unwrap_or(Span {
            line: 1,
            column: 1,
            end_line: 1,
            end_column: 2,
        })
    }
}

/// The text that statements come from.
#[derive(Debug)]
pub struct Source {
    /// For messages: a file's name, or `<command line>`.
    pub name: String,
    /// The text.
    pub text: String,
    /// Tokens without blanks and comments, filled at the first use.
    tokens: OnceLock<Vec<TokenWithSpan>>,
    /// The text without passwords, and its lines, filled at the first use.
    shown: OnceLock<(String, Vec<Line>)>,
}

/// A line of a text, without its end.
#[derive(Debug)]
struct Line {
    range: Range<usize>,
    ascii: bool,
}

impl PartialEq for Source {
    fn eq(&self, other: &Source) -> bool {
        std::ptr::eq(self, other) || (self.name == other.name && self.text == other.text)
    }
}

impl Eq for Source {}

impl Source {
    /// A text of that name.
    pub(crate) fn new(name: impl Into<String>, text: impl Into<String>) -> Source {
        let (tokens, shown) = Default::default();
        Source { name: name.into(), text: text.into(), tokens, shown }
    }

    /// Tokens without blanks and comments; empty if the text cannot be cut into tokens.
    pub(crate) fn tokens(&self) -> &[TokenWithSpan] {
        self.tokens.get_or_init(|| {
            let tokens =
                Tokenizer::new(&MillstreamDialect::default(), &self.text).tokenize_with_location();
            let mut tokens = tokens.unwrap_or_default();
            tokens.retain(|t| !matches!(t.token, Token::Whitespace(_)));
            tokens
        })
    }

    /// A line to be shown, counted from 1, without its end, and whether it is plain ASCII; empty if
    /// there is none. Passwords are hidden.
    pub(crate) fn line(&self, number: u32) -> (&str, bool) {
        let (text, lines) = self.shown.get_or_init(|| {
            let text = masked(&self.text);
            let mut start = 0;
            let lines = text.split_inclusive('\n').map(|line| {
                let range = start..start + line.trim_end().len();
                start += line.len();
                Line { range, ascii: line.is_ascii() }
            });
            let lines = lines.collect();
            (text, lines)
        });
        match lines.get((number as usize).wrapping_sub(1)) {
            Some(line) => (&text[line.range.clone()], line.ascii),
            None => ("", true),
        }
    }

    /// The text of the statements that end before a place.
    pub(crate) fn statements_before(&self, span: Span) -> &str {
        let start =
            self.text.split_inclusive('\n').take(span.line as usize - 1).map(str::len).sum();
        let line = self.text.get(start..).unwrap_or_default();
        let column = line.char_indices().nth(span.column as usize - 1).map_or(0, |(at, _)| at);
        let before = self.text.get(..start + column).unwrap_or_default();
        &before[..before.rfind(';').map_or(0, |at| at + 1)]
    }

    /// The text of a range.
    pub(crate) fn slice(&self, span: Span) -> String {
        let lines = self.text.lines().zip(1u32..);
        let lines = lines.filter(|(_, n)| (span.line..=span.end_line).contains(n));
        let lines = lines.map(|(line, n)| {
            let to = if n == span.end_line { span.end_column as usize - 1 } else { usize::MAX };
            let from = if n == span.line { span.column as usize - 1 } else { 0 };
            line.chars().take(to).skip(from).collect::<String>()
        });
        lines.collect::<Vec<_>>().join("\n")
    }
}
