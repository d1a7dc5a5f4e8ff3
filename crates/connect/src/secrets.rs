//! Secrets in options: `'${env:NAME}'` is the value of an environment variable, `'${file:PATH}'`
//! the content of a file without the line end behind it. `$$` is a dollar sign.
//!
//! They are put in when a connector is asked for a table or a sink, and nowhere else: plans and
//! declarations have them as they are written. Where a connector's messages would show one, they
//! show what is written instead.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use millstream_contract::sink::Sink;
use millstream_contract::table::{Table, TableOptions};
use millstream_contract::wrapped::{Words, Wrapped, WrappedSink};
use millstream_contract::{Error, Result};

use crate::beside;
use crate::files::value_in;
use crate::hidden::{Secret, keep};
use crate::options::option_error;

/// Bytes of a file that is a secret.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// The secrets that have been put into a table's options, and how they are written.
#[derive(Debug, Default)]
pub(crate) struct Secrets(Vec<Secret>);

/// Options with their secrets put in.
///
/// # Errors
///
/// [`Error::Option`] of an option whose secret is not there, or that a column would show.
pub(crate) fn resolved(table: &TableOptions) -> Result<(TableOptions, Secrets)> {
    let (mut resolved, mut secrets) = (table.clone(), Secrets::default());
    for (key, value) in &mut resolved.options {
        if value.contains('$') {
            let wrong = |(message, help): Flaw| option_error(&table.name, key, message, help);
            let whole = put_in(value, &table.base_dir, &mut secrets).map_err(wrong)?;
            if key == "path" {
                not_shown(table, &whole).map_err(wrong)?;
            }
            *value = whole.text;
        }
    }
    // Longer ones first: one may contain another.
    secrets.0.sort_by_key(|secret| std::cmp::Reverse(secret.value.len()));
    keep(&secrets.0);
    Ok((resolved, secrets))
}

/// The options with a substitute for each missing secret, so that other faults are found as well.
/// `None`: without the secret no other fault can be found.
pub(crate) fn without_missing(table: &TableOptions) -> Option<(TableOptions, Secrets)> {
    let mut other = table.clone();
    loop {
        let key = match resolved(&other) {
            Ok(found) => return Some(found),
            Err(Error::Option { option, .. }) => option,
            Err(_) => return None,
        };
        // What must be there; all else may as well be left out.
        let text = match key.as_str() {
            "connector" | "format" => return None,
            "path" => "x",
            "hostname" => "localhost",
            "port" => "1",
            _ => {
                other.options.remove(&key)?;
                continue;
            }
        };
        *other.options.get_mut(&key).filter(|value| *value != text)? = text.to_string();
    }
}

type Flaw = (String, String);

/// A text with its secrets put in, and where they stand in it.
#[derive(Default)]
struct Whole {
    text: String,
    secrets: Vec<Range<usize>>,
}

/// Refuses a column that holds the files' paths, or what a directory's name says: it would show
/// the secret in the path.
fn not_shown(table: &TableOptions, path: &Whole) -> std::result::Result<(), Flaw> {
    if path.secrets.is_empty() {
        return Ok(());
    }
    let help = "leave the column out, or write the path without a secret".to_string();
    if let Some((column, _)) = table.metadata.iter().find(|(_, key)| *key == beside::PATH) {
        let what = format!("column '{column}' is the files' path, and would show the secret in it");
        return Err((what, help));
    }
    let mut start = 0;
    for directory in path.text.split('/') {
        let span = start..start + directory.len();
        start = span.end + 1;
        let is_secret = |secret: &Range<usize>| secret.start < span.end && span.start < secret.end;
        let column = table.partitioned_by.iter().find(|c| value_in(directory, c).is_some());
        if let Some(column) = column.filter(|_| path.secrets.iter().any(is_secret)) {
            let what = format!(
                "column '{column}' is what a directory's name says, and would show the secret in it"
            );
            return Err((what, help));
        }
    }
    Ok(())
}

fn put_in(text: &str, base_dir: &Path, secrets: &mut Secrets) -> std::result::Result<Whole, Flaw> {
    let (mut out, mut rest) = (Whole::default(), text);
    while let Some(at) = rest.find('$') {
        out.text.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            out.text.push('$');
            rest = after;
        } else if let Some(after) = rest.strip_prefix('{') {
            let Some((written, after)) = after.split_once('}') else {
                let message = "a secret begins with ${ and has no } at its end".to_string();
                return Err((message, HELP.to_string()));
            };
            let value = value(written, base_dir)?;
            let start = out.text.len();
            out.text.push_str(&value);
            out.secrets.push(start..out.text.len());
            secrets.0.push(Secret::new(format!("${{{written}}}"), value));
            rest = after;
        } else {
            out.text.push('$');
        }
    }
    out.text.push_str(rest);
    Ok(out)
}

const HELP: &str = "write '${env:NAME}' for an environment variable, '${file:PATH}' for the \
                    content of a file, and $$ for a dollar sign";

fn value(written: &str, base_dir: &Path) -> std::result::Result<String, Flaw> {
    let wrong = |message: String, help: &str| Err((message, help.to_string()));
    match written.split_once(':') {
        Some(("env", name)) => match std::env::var(name) {
            Ok(value) => Ok(value),
            Err(std::env::VarError::NotPresent) => wrong(
                format!("there is no environment variable '{}'", name.escape_debug()),
                "set it before the program starts; $$ is a dollar sign",
            ),
            Err(std::env::VarError::NotUnicode(_)) => {
                wrong(format!("the environment variable '{name}' is no text in UTF-8"), "")
            }
        },
        Some(("file", path)) => file(&base_dir.join(path)),
        _ => wrong(format!("'${{{}}}' is no secret", written.escape_debug()), HELP),
    }
}

fn file(path: &Path) -> std::result::Result<String, Flaw> {
    use std::io::Read;
    let shown = path.display();
    let mut bytes = Vec::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes))
        .map_err(|error| {
            (
                format!("the secret's file '{shown}' cannot be read: {error}"),
                "check the path".into(),
            )
        })?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        let message = format!("the secret's file '{shown}' has more than {FILE_BYTES_MAX} bytes");
        return Err((message, "a secret is a short text".into()));
    }
    match String::from_utf8(bytes) {
        Ok(text) => Ok(text.trim_end_matches(['\n', '\r']).to_string()),
        Err(_) => Err((format!("the secret's file '{shown}' is no text in UTF-8"), String::new())),
    }
}

impl Secrets {
    /// A text in which secrets stand as they are written.
    fn hidden(&self, text: String) -> String {
        self.0.iter().fold(text, |text, secret| secret.hidden(text))
    }

    /// The error with all secrets hidden.
    pub(crate) fn hide(&self, error: Error) -> Error {
        if self.0.is_empty() {
            return error;
        }
        match error {
            Error::Option { table, option, message, help } => Error::Option {
                table,
                option,
                message: self.hidden(message),
                help: self.hidden(help),
            },
            Error::Data { place, message, help } => Error::Data {
                place: self.hidden(place),
                message: self.hidden(message),
                help: self.hidden(help),
            },
            Error::Io { place, message, help } => Error::Io {
                place: self.hidden(place),
                message: self.hidden(message),
                help: self.hidden(help),
            },
            other => other,
        }
    }

    /// A table whose messages show no secret.
    pub(crate) fn hide_in(self, table: Arc<dyn Table>) -> Arc<dyn Table> {
        if self.0.is_empty() { table } else { Arc::new(Wrapped::new(table, Arc::new(self))) }
    }
}

impl Secrets {
    /// A sink whose messages show no secret.
    pub(crate) fn hide_in_sink(self, sink: Arc<dyn Sink>) -> Arc<dyn Sink> {
        if self.0.is_empty() { sink } else { Arc::new(WrappedSink::new(sink, Arc::new(self))) }
    }
}

impl Words for Secrets {
    fn remark(&self, _first: bool, inner: Option<&str>) -> Option<String> {
        inner.map(|inner| self.hidden(inner.to_string()))
    }

    fn notice(&self, inner: String) -> String {
        self.hidden(inner)
    }

    fn error(&self, error: Error) -> Error {
        self.hide(error)
    }

    fn describe(&self, inner: String) -> String {
        self.hidden(inner)
    }

    fn place(&self, inner: String) -> String {
        self.hidden(inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(value: &str) -> TableOptions {
        let schema = Arc::new(arrow::datatypes::Schema::empty());
        let table = TableOptions::new("t", schema, [("password", value)]);
        TableOptions { base_dir: crate::infer::tests::folder("secrets"), ..table }
    }

    #[test]
    fn secrets_are_put_in_and_dollar_signs_stay() {
        // A variable that is always there.
        let path = std::env::var("PATH").unwrap();
        for (written, expected) in [
            ("plain", "plain".to_string()),
            ("a$b", "a$b".to_string()),
            ("$$5 and $", "$5 and $".to_string()),
            ("$${env:PATH}", "${env:PATH}".to_string()),
            ("<${env:PATH}>", format!("<{path}>")),
        ] {
            let (found, _) = resolved(&table(written)).unwrap();
            assert_eq!(found.options["password"], expected);
        }
        let table = table("${file:key}/${file:key}");
        std::fs::write(table.base_dir.join("key"), "hunter2\n").unwrap();
        let (found, secrets) = resolved(&table).unwrap();
        assert_eq!(found.options["password"], "hunter2/hunter2");
        assert!(!format!("{secrets:?}").contains("hunter2"));
    }

    #[test]
    fn what_is_not_there_is_an_error_of_its_option() {
        for (written, expected) in [
            ("${env:MILLSTREAM_NO_SUCH_VARIABLE}", "MILLSTREAM_NO_SUCH_VARIABLE"),
            ("${file:no such file}", "no such file"),
            ("${vault:x}", "no secret"),
            ("${env:PATH", "no }"),
        ] {
            let error = resolved(&table(written)).unwrap_err();
            let Error::Option { option, .. } = &error else { panic!("{error}") };
            assert!(option == "password" && error.to_string().contains(expected), "{error}");
        }
    }

    #[test]
    fn no_column_holds_a_path_with_a_secret() {
        let of = |path: &str, key: &str| {
            let mut table = table(path);
            std::fs::write(table.base_dir.join("key"), "hunter2").unwrap();
            let value = table.options.remove("password").unwrap();
            table.options.insert("path".into(), value);
            table.metadata.insert("f".into(), key.into());
            resolved(&table)
        };
        let error = of("a/${file:key}/b", "path").unwrap_err().to_string();
        assert!(error.contains("column 'f'") && !error.contains("hunter2"), "{error}");
        assert!(of("a/$${file:key}/b", "path").is_ok());
        assert!(of("a/${file:key}/b", "offset").is_ok());
    }

    #[test]
    fn no_column_holds_a_secret_of_a_directory_s_name() {
        let of = |path: &str, key: &str| {
            let mut table = table(path);
            std::fs::write(table.base_dir.join("key"), key).unwrap();
            let value = table.options.remove("password").unwrap();
            table.options.insert("path".into(), value);
            table.partitioned_by = vec!["p".into()];
            resolved(&table).map(drop)
        };
        for path in ["k/p=${file:key}/*.csv", "k/P=a${file:key}b/x.csv", "p=1/p=${file:key}"] {
            let error = of(path, "hunter2").unwrap_err().to_string();
            assert!(error.contains("column 'p'") && !error.contains("hunter2"), "{error}");
        }
        // The secret has the directory within.
        assert!(of("${file:key}/*.csv", "a/p=hunter2").is_err());
        assert!(of("${file:key}/p=1/*.csv", "hunter2").is_ok());
        assert!(of("a/p=1/q=${file:key}.csv", "hunter2").is_ok());
    }

    #[test]
    fn notices_show_how_a_secret_is_written() {
        let table = table("${file:key}");
        std::fs::write(table.base_dir.join("key"), "hunter2").unwrap();
        let (_, secrets) = resolved(&table).unwrap();
        assert_eq!(secrets.notice("hunter2/x: anew".into()), "${file:key}/x: anew");
    }

    #[test]
    fn messages_show_how_a_secret_is_written() {
        let table = table("${file:key}");
        std::fs::write(table.base_dir.join("key"), "it\"s").unwrap();
        let (_, secrets) = resolved(&table).unwrap();
        let error = option_error("t", "password", "found 'it\\\"s'".into(), "not it\"s");
        let shown = secrets.hide(error).to_string();
        assert!(!shown.contains("it") && shown.contains("found '${file:key}'"), "{shown}");
        let error = Error::Data { place: "it\"s:1".into(), message: "x".into(), help: "".into() };
        assert_eq!(secrets.hide(error).to_string(), "${file:key}:1: x");
    }
}
