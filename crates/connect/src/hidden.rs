//! A secret, and the texts in which it is not shown.

use std::cmp::Reverse;
use std::fmt;
use std::sync::{Mutex, PoisonError};

/// A text that was put into an option, and how it is written there.
#[derive(Clone, PartialEq)]
pub(crate) struct Secret {
    written: String,
    pub(crate) value: String,
    /// Texts that show the value wherever they stand, longest first.
    forms: Vec<String>,
    /// Names of files and directories in the value: they show the value only within a path.
    names: Vec<String>,
}

/// The secrets of all tables, for paths that are shown without their table.
static ALL: Mutex<Vec<Secret>> = Mutex::new(Vec::new());

impl Secret {
    /// Of a value, written so.
    pub(crate) fn new(written: String, value: String) -> Secret {
        // Blanks, dots and slashes reveal nothing, and stand everywhere.
        let tells = |text: &&str| text.contains(|c: char| !c.is_whitespace() && !"/.".contains(c));
        let parts = || value.split('/').filter(|part| !["", ".", ".."].contains(part));
        // As a path that is put together again, and as one whose links have been followed.
        let start = if value.starts_with('/') { "/" } else { "" };
        let whole = start.to_string() + &parts().collect::<Vec<_>>().join("/");
        let mut forms = vec![value.escape_debug().to_string(), value.clone(), whole];
        forms.retain(|form| tells(&form.as_str()));
        forms.sort_by_key(|form| Reverse(form.len()));
        forms.dedup();
        let mut names = Vec::new();
        if value.contains('/') {
            names.extend(parts().filter(tells).map(str::to_string));
        }
        Secret { written, value, forms, names }
    }

    /// A text with the secret as it is written.
    pub(crate) fn hidden(&self, mut text: String) -> String {
        let is_apart = |form: &&String| !self.written.contains(*form);
        for form in self.forms.iter().filter(|form| **form == self.value || is_apart(form)) {
            if text.contains(form) {
                text = text.replace(form, &self.written);
            }
        }
        for name in self.names.iter().filter(is_apart) {
            let mut rest = std::mem::take(&mut text);
            while let Some(at) = rest.find(name) {
                let (before, behind) = (&rest[..at], &rest[at + name.len()..]);
                let ends = |c: &char| !c.is_alphanumeric() && !"_-.".contains(*c);
                let (left, right) = (before.chars().next_back(), behind.chars().next());
                let alone = left.is_none_or(|c| ends(&c)) && right.is_none_or(|c| ends(&c));
                let in_path = [left, right].iter().flatten().any(|c| "/'`\"".contains(*c));
                text.push_str(before);
                text.push_str(if alone && in_path { &self.written } else { name });
                rest = behind.to_string();
            }
            text.push_str(&rest);
        }
        text
    }
}

/// Keeps the secrets of a table for [`hidden_everywhere`].
pub(crate) fn keep(secrets: &[Secret]) {
    let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
    for secret in secrets {
        if !all.contains(secret) {
            all.push(secret.clone());
        }
    }
}

/// A path in which the secrets of all tables stand as they are written.
pub(crate) fn hidden_everywhere(text: String) -> String {
    let all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
    all.iter().fold(text, |text, secret| secret.hidden(text))
}

/// Not even where a program prints itself.
impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.written)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_hidden_however_it_is_put_together() {
        let secret = |value: &str| Secret::new("${env:X}".into(), value.into());
        for (value, text, expected) in [
            ("top//data", "./top/data/g.txt:2", "./${env:X}/g.txt:2"),
            ("priv/", "'./priv' is a directory", "'./${env:X}' is a directory"),
            ("./priv", "did you mean 'priv/x.csv'?", "did you mean '${env:X}/x.csv'?"),
            ("../sx/priv", "/home/sx/priv/f: private data", "/home/${env:X}/f: private data"),
            ("a/data", "no data in b/data and data.csv", "no data in b/${env:X} and data.csv"),
            ("/", "a/b", "a/b"),
            ("!!", "a!!b", "a${env:X}b"),
        ] {
            assert_eq!(secret(value).hidden(text.into()), expected);
        }
    }
}
