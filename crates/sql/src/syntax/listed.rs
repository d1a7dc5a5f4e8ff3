//! `SHOW`: which lists there are, and how they are asked for.

use crate::syntax::prelude::*;
use crate::syntax::words::single_name;

/// A list, and the pattern of the names in it that are wanted.
#[derive(Debug, Clone)]
pub(crate) struct Show {
    pub(crate) what: Listed,
    pub(crate) like: Option<String>,
}

/// Subjects of `SHOW`.
#[derive(Debug, Clone)]
pub(crate) enum Listed {
    /// Tables and views, as in Flink.
    Tables,
    Views,
    /// Built-in and declared functions.
    Functions,
    /// Declared functions only.
    UserFunctions,
    /// Settings with their values; also `SET` alone.
    Settings,
    /// The statement that declared a table or a view.
    Created(Ident),
}

const LISTS: [&str; 7] =
    ["TABLES", "VIEWS", "FUNCTIONS", "USER FUNCTIONS", "SETTINGS", "CREATE TABLE", "CREATE VIEW"];

/// Parses a statement that begins with SHOW.
pub(crate) fn parse_show(parser: &mut Parser<'_>) -> Result<Show> {
    parser.expect_keyword(Keyword::SHOW)?;
    let what = parse_list(parser)?;
    let like = match &what {
        Listed::Created(_) => None,
        _ if parser.parse_keyword(Keyword::LIKE) => Some(parser.parse_literal_string()?),
        _ => None,
    };
    Ok(Show { what, like })
}

fn parse_list(parser: &mut Parser<'_>) -> Result<Listed> {
    let first = parser.next_token();
    let word = |token: &Token| match token {
        Token::Word(word) => word.value.to_uppercase(),
        other => other.to_string(),
    };
    match word(&first.token).as_str() {
        "TABLES" => return Ok(Listed::Tables),
        "VIEWS" => return Ok(Listed::Views),
        "FUNCTIONS" => return Ok(Listed::Functions),
        "SETTINGS" => return Ok(Listed::Settings),
        "CREATE" if parser.parse_one_of_keywords(&[Keyword::TABLE, Keyword::VIEW]).is_some() => {
            return Ok(Listed::Created(single_name(parser)?));
        }
        "USER" if word(&parser.peek_token().token) == "FUNCTIONS" => {
            parser.next_token();
            return Ok(Listed::UserFunctions);
        }
        _ => {}
    }
    let error = match &first.token {
        Token::EOF => SqlError::syntax("SHOW does not say what"),
        _ => SqlError::unsupported(format!("SHOW {first} does not run here")),
    };
    Err(error.at(Span::new(first.span)).help(
        match closest(&word(&first.token), LISTS.into_iter()) {
            Some(meant) => format!("did you mean SHOW {meant}?"),
            None => format!("there are SHOW {}, and DESCRIBE table", LISTS.join(", SHOW ")),
        },
    ))
}

/// Columns of text as rows; `None` is NULL.
pub(crate) fn rows_of_text(columns: &[(&str, Vec<Option<String>>)]) -> Result<RecordBatch> {
    let fields: Vec<Field> =
        columns.iter().map(|(name, _)| Field::new(*name, DataType::Utf8, true)).collect();
    let arrays =
        columns.iter().map(|(_, texts)| Arc::new(StringArray::from(texts.clone())) as ArrayRef);
    RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays.collect())
        .map_err(|e| SqlError::internal(e.to_string()))
}
