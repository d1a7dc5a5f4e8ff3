//! Reading the `WITH` options of a table. Each option is asked for by name; an option that nobody
//! asked for is an error with a "did you mean".

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use arrow::datatypes::TimeUnit;
use millstream_contract::settings::{closest, parse_duration_us};
use millstream_contract::table::TableOptions;
use millstream_contract::{Error, Result};

use crate::datetime::parse_timestamp;

/// Treatment of malformed records: the option `on_error`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnError {
    /// The first ends the job.
    #[default]
    Fail,
    /// They are counted and left out.
    Skip,
    /// They are left out, and go to a table of their own.
    Keep,
}

/// Reads options and remembers which exist: for connectors, also of other crates.
pub struct Options<'a> {
    table: &'a TableOptions,
    known: RefCell<BTreeSet<String>>,
}

impl<'a> Options<'a> {
    /// The options of a table. `connector` always counts as known.
    pub fn new(table: &'a TableOptions) -> Self {
        let known = RefCell::new(BTreeSet::from(["connector".to_string()]));
        Options { table, known }
    }

    /// An error about one option.
    pub fn error(&self, option: &str, message: String, help: impl Into<String>) -> Error {
        option_error(&self.table.name, option, message, help)
    }

    /// The table's name.
    pub(crate) fn table_name(&self) -> &'a str {
        &self.table.name
    }

    /// The option's text.
    pub fn text(&self, key: &str) -> Option<&'a str> {
        self.known.borrow_mut().insert(key.to_string());
        self.table.options.get(key).map(String::as_str)
    }

    /// Whether there is an option of such a name.
    pub(crate) fn any(&self, of: impl Fn(&str) -> bool) -> bool {
        self.table.options.keys().any(|key| of(key))
    }

    /// Error for a missing required option; suggests an unknown option with a similar name.
    pub(crate) fn missing(&self, key: &str, message: &str, help: &str) -> Error {
        let known = self.known.borrow();
        let others = self.table.options.keys().filter(|key| !known.contains(*key));
        let help = match closest(key, others.map(String::as_str)) {
            Some(other) => format!("did you mean '{key}' by '{other}'?"),
            None => help.to_string(),
        };
        self.error(key, message.into(), help)
    }

    /// The columns of `PARTITIONED BY`.
    pub(crate) fn partitioned_by(&self) -> &'a [String] {
        &self.table.partitioned_by
    }

    /// Whether a value has to be held as it stands.
    pub(crate) fn exact(&self) -> bool {
        self.table.exact
    }

    /// Where a path leads that is given relative to the SQL file.
    pub(crate) fn path(&self, given: &str) -> PathBuf {
        self.table.base_dir.join(given.strip_prefix("file://").unwrap_or(given))
    }

    /// Where the names of splits start that are paths: at the directory of the SQL file, unless a
    /// path is given from the root on.
    pub(crate) fn base(&self, given: &str) -> &'a Path {
        match Path::new(given.strip_prefix("file://").unwrap_or(given)).is_absolute() {
            true => Path::new(""),
            false => &self.table.base_dir,
        }
    }

    /// Where such a path starts, for messages.
    pub(crate) fn start(&self, given: &str) -> &'static str {
        let given = given.strip_prefix("file://").unwrap_or(given);
        if Path::new(given).is_absolute() {
            "check the path"
        } else if self.table.base_dir == Path::new(".") {
            "a relative path starts at the current directory"
        } else {
            "a relative path starts at the directory of the SQL file"
        }
    }

    /// The option's value as `parse` reads it; `form` says what is expected.
    pub fn parsed<T>(
        &self,
        key: &str,
        form: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>> {
        self.parsed_or(key, form, "", parse)
    }

    /// As [`Options::parsed`]; `help` says more where it cannot be read.
    pub(crate) fn parsed_or<T>(
        &self,
        key: &str,
        form: &str,
        help: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>> {
        let Some(text) = self.text(key) else { return Ok(None) };
        match parse(text) {
            Some(value) => Ok(Some(value)),
            None => Err(self.error(
                key,
                format!("expected {form}, found '{}'", text.escape_debug()),
                help,
            )),
        }
    }

    /// `'true'` or `'false'`; `false` when absent.
    pub fn flag(&self, key: &str) -> Result<bool> {
        let flag = self.parsed(key, "'true' or 'false'", |text| match text {
            _ if text.eq_ignore_ascii_case("true") => Some(true),
            _ if text.eq_ignore_ascii_case("false") => Some(false),
            _ => None,
        })?;
        Ok(flag.unwrap_or(false))
    }

    /// Treatment of malformed records. `own` is the format's own option for leaving them out, as in
    /// Flink, if it has such an option.
    pub(crate) fn on_error(&self, own: Option<&str>) -> Result<OnError> {
        let form = "'fail', 'skip' or 'table:NAME'";
        let on_error = self.parsed("on_error", form, |text| match text.trim() {
            "fail" => Some(OnError::Fail),
            "skip" => Some(OnError::Skip),
            // The planner looks for the table.
            text => text.strip_prefix("table:").map(|_| OnError::Keep),
        })?;
        let leaves_out = own.map(|own| self.flag(own)).transpose()?.unwrap_or(false);
        match (on_error, own.filter(|_| leaves_out)) {
            (Some(OnError::Fail), Some(own)) => {
                let message = format!("'fail' does not go with '{own}' = 'true'");
                Err(self.error("on_error", message, "leave one of them out"))
            }
            (None, Some(_)) => Ok(OnError::Skip),
            (on_error, _) => Ok(on_error.unwrap_or_default()),
        }
    }

    /// An integer in `min..=max`.
    pub fn integer(&self, key: &str, min: u64, max: u64) -> Result<Option<u64>> {
        self.parsed(key, &format!("a whole number from {min} to {max}"), |text| {
            text.trim().parse().ok().filter(|n| (min..=max).contains(n))
        })
    }

    /// An address to listen at, or a port of this machine alone; `form` says so.
    pub fn address(&self, key: &str, form: &str) -> Result<Option<SocketAddr>> {
        self.parsed(key, form, |text| address(text.trim()))
    }

    /// A duration such as `'10 us'`, in microseconds.
    pub(crate) fn duration_us(&self, key: &str) -> Result<Option<i64>> {
        self.parsed(key, "a duration such as '10 us' or '1 min'", parse_duration_us)
    }

    /// A timestamp such as `'2024-01-31 12:00:00'`, in milliseconds since 1970, in UTC.
    pub fn timestamp_ms(&self, key: &str) -> Result<Option<i64>> {
        self.parsed(key, "a timestamp such as '2024-01-31 12:00:00'", |text| {
            parse_timestamp(text.trim().as_bytes())?.in_unit(TimeUnit::Millisecond)
        })
    }

    /// A single ASCII character that can stand between fields or around them.
    pub(crate) fn ascii_char(&self, key: &str) -> Result<Option<u8>> {
        let form = "one ASCII character, not a letter, a digit or a line end";
        let help = "for example ';' or '|'; '\\t' is the tabulator";
        self.parsed_or(key, form, help, |text| {
            // People write the tabulator as SQL text, where '\t' are two characters.
            let text = if text == "\\t" { "\t" } else { text };
            match text.as_bytes() {
                [b'\n' | b'\r' | b'\0'] => None,
                [byte] if byte.is_ascii() && !byte.is_ascii_alphanumeric() => Some(*byte),
                _ => None,
            }
        })
    }

    /// Fails if there is an option that nobody has asked for.
    pub fn finish(&self, what: &str) -> Result<()> {
        let known = self.known.borrow();
        let Some(key) = self.table.options.keys().find(|key| !known.contains(*key)) else {
            return Ok(());
        };
        // Of a column's options only that column's may be meant.
        let own = key.rsplit_once('.').map_or("", |(own, _)| own);
        let own = known.iter().filter(|name| name.rsplit_once('.').is_some_and(|n| n.0 == own));
        let own: Vec<&str> = own.map(String::as_str).collect();
        let meant = match key.starts_with("fields.") && !own.is_empty() {
            true => closest(key, own.iter().copied()).or(own.first().copied()),
            false => closest(key, known.iter().map(String::as_str)),
        };
        let help = match meant {
            Some(name) => format!("did you mean '{name}'?"),
            None => {
                let names: Vec<&str> = known.iter().map(String::as_str).collect();
                format!("its options are {}", names.join(", "))
            }
        };
        Err(self.error(key, format!("{what} has no such option"), help))
    }
}

/// An address with its port; of this machine alone, where only the port is given.
fn address(text: &str) -> Option<SocketAddr> {
    let port = text.strip_prefix("localhost:").unwrap_or(text);
    match port.parse::<u16>() {
        Ok(port) => Some(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)),
        Err(_) => text.parse().ok(),
    }
}

/// An [`Error::Option`].
pub(crate) fn option_error(
    table: &str,
    option: &str,
    message: String,
    help: impl Into<String>,
) -> Error {
    Error::Option { table: table.into(), option: option.into(), message, help: help.into() }
}
