//! The things that must be the same in all processes before a query starts, compared one by one.

use serde::{Deserialize, Serialize};

/// Named texts: version, plan, schema, settings.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parts(Vec<(String, String)>);

/// Characters of a differing text that a message shows.
const SHOWN_CHARS: usize = 120;

impl Parts {
    /// No parts.
    pub fn new() -> Parts {
        Parts::default()
    }

    /// With one more part.
    pub fn with(mut self, name: &str, text: impl Into<String>) -> Parts {
        self.0.push((name.to_string(), text.into()));
        self
    }

    /// The first difference between what process 0 has and what another has, in words.
    pub fn difference(&self, other: &Parts) -> Option<String> {
        for (ours, theirs) in self.0.iter().zip(&other.0) {
            if ours.0 != theirs.0 {
                return Some(format!(
                    "it compares its {} where process 0 compares its {}",
                    shortened(&theirs.0),
                    shortened(&ours.0)
                ));
            }
            if ours.1 != theirs.1 {
                let (expected, found) = first_different_lines(&ours.1, &theirs.1);
                let skipped = skipped_chars(expected, found);
                return Some(format!(
                    "not the same {}\n  process 0: {}\n  it: {}",
                    shortened(&ours.0),
                    shortened_from(skipped, expected),
                    shortened_from(skipped, found)
                ));
            }
        }
        (self.0.len() != other.0.len())
            .then(|| format!("it compares {} parts, process 0 {}", other.0.len(), self.0.len()))
    }
}

/// The first lines in which two texts differ, trimmed; `(nothing)` for a missing line.
fn first_different_lines<'a>(ours: &'a str, theirs: &'a str) -> (&'a str, &'a str) {
    let (mut a, mut b) = (ours.lines(), theirs.lines());
    loop {
        match (a.next(), b.next()) {
            (Some(a), Some(b)) if a == b => {}
            (None, None) => return ("(the same lines)", "(other ends of lines)"),
            (a, b) => {
                return (a.map_or("(nothing)", str::trim), b.map_or("(nothing)", str::trim));
            }
        }
    }
}

/// How many equal characters to leave out at the start, so that the difference is shown: none if
/// the difference is near the start.
fn skipped_chars(ours: &str, theirs: &str) -> usize {
    let same = ours.chars().zip(theirs.chars()).take_while(|(a, b)| a == b).count();
    if same < SHOWN_CHARS / 2 { 0 } else { same - SHOWN_CHARS / 3 }
}

fn shortened_from(skipped: usize, text: &str) -> String {
    match text.char_indices().nth(skipped) {
        Some((start, _)) if start > 0 => format!("…{}", shortened(&text[start..])),
        _ => shortened(text),
    }
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(SHOWN_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(plan: &str) -> Parts {
        Parts::new().with("version", "1").with("plan", plan)
    }

    #[test]
    fn the_first_difference_is_named_with_both_texts() {
        let ours = parts("scan a\n  filter x > 1\nend");
        assert_eq!(ours.difference(&ours.clone()), None);
        let found = ours.difference(&parts("scan a\n  filter x > 2\nend")).unwrap();
        assert_eq!(found, "not the same plan\n  process 0: filter x > 1\n  it: filter x > 2");
        let found = ours.difference(&parts("scan a")).unwrap();
        assert_eq!(found, "not the same plan\n  process 0: filter x > 1\n  it: (nothing)");
        assert!(ours.difference(&parts("scan a\n  filter x > 1\nend\n")).is_some());
        let found = ours.difference(&Parts::new().with("version", "2")).unwrap();
        assert!(found.starts_with("not the same version"), "{found}");
        assert!(ours.difference(&Parts::new().with("version", "1")).is_some());
        assert!(ours.difference(&Parts::new().with("schema", "1")).unwrap().contains("schema"));
    }

    #[test]
    fn a_long_text_is_cut_at_a_character() {
        let found = parts("a").difference(&parts(&"ü".repeat(10_000))).unwrap();
        assert!(found.len() < 500 && found.ends_with('…'), "{found}");
        // Both show where they differ.
        let long = |end: &str| parts(&format!("{}{end}", "ü".repeat(10_000)));
        let found = long("1, and so on").difference(&long("2")).unwrap();
        let same = "ü".repeat(SHOWN_CHARS / 3);
        let expected = format!("process 0: …{same}1, and so on\n  it: …{same}2");
        assert!(found.ends_with(&expected), "{found}");
        assert!(long("").difference(&long("2")).unwrap().ends_with(&format!("it: …{same}2")));
    }
}
