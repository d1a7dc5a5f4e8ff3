//! The SQL text of an aggregate call, which also names its column.

use crate::aggregates::sql_name;
use crate::collected;
use crate::lower::Call;
use crate::text::sql_text;

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
}
