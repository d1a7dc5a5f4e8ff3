//! Names of objects: allowed names, and the names of manifests and state files within a prefix.
//!
//! ```text
//! manifest-0000000017.json
//! state/0000000017-<label>-<attempt>
//! ```

use crate::error::{Error, Result};

/// Longest part of a name: with the ending of a temporary file it is a file's name.
const PART_MAX: usize = 200;
/// Longest name.
const NAME_MAX: usize = 1000;

/// Checks a name, so that it can be a path within a directory.
pub(crate) fn check(name: &str) -> Result<()> {
    let fault = |message| Err(Error::Name { name: name.to_string(), message });
    if name.len() > NAME_MAX {
        return fault("it is too long");
    }
    for part in name.split('/') {
        match part {
            "" => return fault("a part of it is empty"),
            _ if part.starts_with('.') => return fault("a part of it begins with a dot"),
            _ if part.len() > PART_MAX => return fault("a part of it is too long"),
            _ if !part.bytes().all(is_usual) => return fault("it has another character"),
            _ => {}
        }
    }
    Ok(())
}

/// Begin of a manifest's name.
pub(crate) const MANIFEST: &str = "manifest-";
/// Begin of a state file's name.
pub(crate) const STATE: &str = "state/";
/// Digits of a checkpoint's number.
const DIGITS: usize = 10;
/// Checkpoints have lower numbers.
pub(crate) const CHECKPOINT_END: u64 = 10_u64.pow(DIGITS as u32);

/// Name of a checkpoint's manifest.
pub(crate) fn manifest(checkpoint: u64) -> String {
    format!("{MANIFEST}{checkpoint:0DIGITS$}.json")
}

/// The checkpoint whose manifest has this name.
pub(crate) fn manifest_of(name: &str) -> Option<u64> {
    number(name.strip_prefix(MANIFEST)?.strip_suffix(".json")?)
}

/// Name of a file with state.
pub(crate) fn state(checkpoint: u64, label: &str, attempt: &str) -> Result<String> {
    let name = format!("{STATE}{checkpoint:0DIGITS$}-{label}-{attempt}");
    match state_of(&name) {
        Some(number) if number == checkpoint => Ok(name),
        _ => Err(Error::Name { name, message: "its number, label or attempt is not usual" }),
    }
}

/// The checkpoint for which the file with state of this name was written.
pub(crate) fn state_of(name: &str) -> Option<u64> {
    let (digits, label) = name.strip_prefix(STATE)?.split_at_checked(DIGITS)?;
    let is_label = label.starts_with('-') && !label.contains('/') && check(name).is_ok();
    number(digits).filter(|_| is_label)
}

fn number(digits: &str) -> Option<u64> {
    let is_usual = digits.len() == DIGITS && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_usual.then(|| digits.parse().ok()).flatten()
}

fn is_usual(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_.=".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_leads_out() {
        for name in ["a", "1/state/0000000017-0-ab.parquet", "a=b/c_d", "a..b"] {
            assert_eq!(check(name), Ok(()), "{name}");
        }
        let long = "x".repeat(201);
        let deep = "x/".repeat(600) + "x";
        for name in [
            "", "/", "/a", "a/", "a//b", "..", "../a", "a/../b", ".", "a/.", ".a", "a/.b.tmp",
            "a b", "a\0", "a\\b", "ä", "a\n", &long, &deep,
        ] {
            assert!(matches!(check(name), Err(Error::Name { .. })), "{name}");
        }
    }
}
