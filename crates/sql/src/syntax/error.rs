//! Errors with a place: what is wrong with a statement, where in its text, and what to write
//! instead.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::{borrow::Cow, sync::Arc};

use millstream_contract::settings::closest;

use crate::syntax::frame::frame;

pub use crate::syntax::source::{Source, Span};

/// Kinds of mistakes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The text is not SQL.
    Syntax,
    /// A table, column, function or option that does not exist.
    Name,
    /// Values of types that do not go together.
    Type,
    /// SQL that Millstream does not run, or not as a stream.
    Unsupported,
    /// A setting that does not exist or a value that does not fit.
    Setting,
    /// A connector refused a table's options.
    Connector,
    /// The system has refused what planning needs: no fault of the statement's.
    System,
    /// A broken promise inside Millstream.
    Internal,
}

/// A range of a text, for messages about it while a query runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) span: Span,
    pub(crate) source: Arc<Source>,
}

impl Place {
    /// The text at this place, on one line.
    pub(crate) fn text(&self) -> String {
        const CHARS_MAX: usize = 200;
        let text = self.source.slice(self.span);
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        match text.char_indices().nth(CHARS_MAX) {
            Some((end, _)) => format!("{}…", &text[..end]),
            None => text,
        }
    }

    /// The place underlined; see [`SqlError::render`].
    pub(crate) fn frame(&self) -> String {
        frame(&self.source, self.span)
    }
}

impl Hash for Place {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.span.hash(state);
    }
}

/// Why a statement was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SqlError {
    /// Kind of the mistake.
    pub kind: ErrorKind,
    /// Description of the mistake, in one sentence.
    pub message: String,
    /// Where.
    pub span: Option<Span>,
    /// Advice: the text to write instead.
    pub help: Option<String>,
    /// The text that `span` refers to.
    pub source: Option<Arc<Source>>,
}

/// The result of anything done with SQL.
pub type Result<T, E = SqlError> = std::result::Result<T, E>;

impl SqlError {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> SqlError {
        SqlError { kind, message: message.into(), span: None, help: None, source: None }
    }

    pub(crate) fn syntax(message: impl Into<String>) -> SqlError {
        SqlError::new(ErrorKind::Syntax, message)
    }

    pub(crate) fn name(message: impl Into<String>) -> SqlError {
        SqlError::new(ErrorKind::Name, message)
    }

    pub(crate) fn types(message: impl Into<String>) -> SqlError {
        SqlError::new(ErrorKind::Type, message)
    }

    pub(crate) fn unsupported(message: impl Into<String>) -> SqlError {
        SqlError::new(ErrorKind::Unsupported, message)
    }

    pub(crate) fn internal(message: impl fmt::Display) -> SqlError {
        SqlError::new(ErrorKind::Internal, format!("internal error (please report it): {message}"))
    }

    pub(crate) fn help(mut self, help: impl Into<String>) -> SqlError {
        self.help = Some(help.into());
        self
    }

    pub(crate) fn maybe_help(mut self, help: Option<String>) -> SqlError {
        self.help = self.help.or(help);
        self
    }

    /// Asks whether a name like `name` was meant; without such a name, the advice is `otherwise`.
    pub(crate) fn meant<'n>(
        self,
        name: &str,
        among: impl Iterator<Item = &'n str>,
        otherwise: &str,
    ) -> SqlError {
        match closest(name, among) {
            Some(meant) => self.help(format!("did you mean '{meant}'?")),
            None if otherwise.is_empty() => self,
            None => self.help(otherwise),
        }
    }

    /// Sets the place unless there is one.
    pub(crate) fn at(mut self, span: Option<Span>) -> SqlError {
        self.span = self.span.or(span);
        self
    }

    pub(crate) fn in_source(mut self, source: &Arc<Source>) -> SqlError {
        if self.source.is_none() {
            self.source = Some(source.clone());
        }
        self
    }

    /// The message with the line of SQL underlined at the place:
    ///
    /// ```text
    /// error: there is no column 'job_idd' in table 'task_events'
    ///   --> query.sql:3:22
    ///    |
    ///  3 | SELECT window_start, job_idd, AVG(cpu_request) AS cpu
    ///    |                      ^^^^^^^
    ///   help: did you mean 'job_id'?
    /// ```
    pub fn render(&self) -> String {
        format!("error: {self}")
    }

    fn underlined(&self) -> Option<String> {
        Some(frame(self.source.as_ref()?, self.span?))
    }
}

/// The longest message; a part of the text that it quotes may be as long as that.
const MESSAGE_CHARS_MAX: usize = 2_000;

/// A message without the middle of what is too long to be read.
fn shortened(message: &str) -> Cow<'_, str> {
    let half = MESSAGE_CHARS_MAX / 2;
    let Some((cut, _)) = message.char_indices().nth(MESSAGE_CHARS_MAX) else {
        return message.into();
    };
    let (head, _) = message.char_indices().nth(half).unwrap_or((cut, ' '));
    let (tail, _) = message.char_indices().nth_back(half - 1).unwrap_or((cut, ' '));
    format!("{} … {}", &message[..head], &message[tail..]).into()
}

impl fmt::Display for SqlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&shortened(&self.message))?;
        if let Some(frame) = self.underlined() {
            write!(f, "\n{frame}")?;
        }
        if let Some(help) = &self.help {
            write!(f, "\n  help: {}", help.replace('\n', "\n        "))?;
        }
        Ok(())
    }
}

impl std::error::Error for SqlError {}
