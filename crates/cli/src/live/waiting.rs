//! Pipes that are waited for before a query runs.

use std::time::Duration;

use millstream::observe::duration;
use millstream::program::{AwaitedPipe, awaited_pipes};
use serde::{Deserialize, Serialize};

/// A pipe without any input yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Awaited {
    path: String,
    table: String,
    has_writer: bool,
}

impl From<AwaitedPipe> for Awaited {
    fn from(pipe: AwaitedPipe) -> Awaited {
        let AwaitedPipe { path, table, has_writer } = pipe;
        Awaited { path: path.display().to_string(), table, has_writer }
    }
}

/// Pipes for whose writers this process waits.
pub(super) fn awaited() -> Vec<Awaited> {
    awaited_pipes().into_iter().map(Awaited::from).collect()
}

/// Text about the awaited pipes, if any.
pub(super) fn described(awaited: &[Awaited]) -> Option<String> {
    let one = |pipe: &Awaited| match pipe.path == pipe.table {
        true => format!("{} of the pipe {}", pipe.what(), pipe.path),
        false => format!("{} of the pipe {} (table {})", pipe.what(), pipe.path, pipe.table),
    };
    let texts: Vec<String> = awaited.iter().map(one).collect();
    (!texts.is_empty()).then(|| format!("waiting for {}", texts.join(", and for ")))
}

/// The same in a line of at most so many columns, with the time that it has taken so far. Of a path
/// that is too long its end is shown.
pub(super) fn line(awaited: &[Awaited], since: Duration, columns: usize) -> Option<String> {
    let pipe = awaited.first()?;
    let more = match awaited.len() {
        1 => String::new(),
        pipes => format!(" and {} more", pipes - 1),
    };
    let begin = format!("waiting for {} of ", pipe.what());
    let room = columns.saturating_sub(begin.chars().count() + more.chars().count());
    let text = format!("{begin}{}{more}", end_of(&pipe.path, room));
    let whole = format!("{text} · planning for {}", duration(since.as_micros() as u64));
    Some(if whole.chars().count() <= columns { whole } else { text })
}

/// A text of at most so many characters that ends as this one does.
fn end_of(text: &str, chars: usize) -> String {
    let all = text.chars().count();
    match all <= chars {
        true => text.to_string(),
        false => "…".chars().chain(text.chars().skip(all + 1 - chars.max(1))).collect(),
    }
}

impl Awaited {
    fn what(&self) -> &'static str {
        if self.has_writer { "the first bytes" } else { "a writer" }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pipe(path: &str, has_writer: bool) -> Awaited {
        Awaited { path: path.into(), table: "clicks".into(), has_writer }
    }

    #[test]
    fn pipes_are_named() {
        assert_eq!(described(&[]), None);
        assert_eq!(
            described(&[pipe("./a.csv", false), pipe("b", true)]).unwrap(),
            "waiting for a writer of the pipe ./a.csv (table clicks), and for the first bytes \
             of the pipe b (table clicks)"
        );
    }

    #[test]
    fn a_narrow_line_has_the_end_of_the_path() {
        let long = [pipe("/var/run/collector/in/clicks.csv", false)];
        let line = |columns| line(&long, Duration::from_secs(10), columns).unwrap();
        assert_eq!(
            line(80),
            "waiting for a writer of /var/run/collector/in/clicks.csv · planning for 10 s"
        );
        assert_eq!(line(60), "waiting for a writer of /var/run/collector/in/clicks.csv");
        assert_eq!(line(38), "waiting for a writer of …in/clicks.csv");
        let two = [pipe("./a", false), pipe("./b", false)];
        assert_eq!(
            super::line(&two, Duration::from_secs(10), 38).unwrap(),
            "waiting for a writer of ./a and 1 more"
        );
    }
}
