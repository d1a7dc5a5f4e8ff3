//! The SQL text of an aggregate call, which also names its column.

use crate::expr::{aggregates::sql_name, collected, text::sql_text};
use crate::stages::lower::Call;
use crate::syntax::prelude::*;

impl Call {
    /// As SQL text.
    pub(crate) fn text(&self) -> String {
        let special = collected::text(self.function, self.arguments.first());
        let arguments: Vec<String> = self.arguments.iter().map(sql_text).collect();
        let arguments = match &arguments[..] {
            [] => "*".to_string(),
            arguments => arguments.join(", "),
        };
        let filter = match &self.filter {
            Some(filter) => format!(" FILTER (WHERE {})", sql_text(filter)),
            None => String::new(),
        };
        let distinct = if self.distinct.is_some() { "DISTINCT " } else { "" };
        let name = || sql_name(self.function);
        let call = special.unwrap_or_else(|| format!("{}({distinct}{arguments})", name()));
        format!("{call}{filter}")
    }

    /// The call in messages: its SQL text. Columns of VALUES have names that the writer has not
    /// written (`column1`), so calls of them show the text of the statement.
    pub(crate) fn shown(&self) -> String {
        let of_values = |name: &str| {
            let number = name.strip_prefix("column").unwrap_or_default();
            !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
        };
        let mut columns = self.arguments.iter().flat_map(Expr::column_refs);
        match &self.place {
            Some(place) if columns.any(|column| of_values(&column.name)) => place.text(),
            _ => self.text(),
        }
    }
}
