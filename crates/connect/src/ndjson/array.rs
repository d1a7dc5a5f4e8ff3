//! An array of objects, made lines of: as a sender has them that knows no NDJSON.

/// Turns an array of objects into lines, one object each, in place; a text that does not begin as
/// such an array stays as it is. Lines are numbered as the objects are. Elements that are not
/// objects are reported by the reader of the lines.
///
/// # Errors
///
/// If the array has no end, or something stands behind it, or an element is missing.
pub(super) fn to_lines(text: &mut [u8]) -> Result<(), String> {
    let blanks = |text: &[u8]| text.len() - text.trim_ascii_start().len();
    let start = blanks(text);
    let Some([b'[', rest @ ..]) = text.get(start..) else { return Ok(()) };
    if !rest.trim_ascii_start().starts_with(b"{") && !rest.trim_ascii_start().starts_with(b"]") {
        return Ok(());
    }
    text[..=start].fill(b' ');
    // Levels of objects and arrays, the outermost array included; and whether there is something
    // since the last comma there.
    let (mut depth, mut any, mut is_first, mut at) = (1, false, true, start + 1);
    while let Some(byte) = text.get_mut(at) {
        at += 1;
        match *byte {
            b'"' => {
                any = true;
                at = string_end(text, at);
            }
            b'{' | b'[' => (depth, any) = (depth + 1, true),
            b'}' | b']' if depth > 1 => depth -= 1,
            b']' if any || is_first => {
                *byte = b' ';
                return match text[at..].trim_ascii().is_empty() {
                    true => Ok(()),
                    false => Err("expected nothing behind the array of records".into()),
                };
            }
            b',' if depth == 1 && any => {
                *byte = b'\n';
                (any, is_first) = (false, false);
            }
            b']' | b'}' | b',' if depth == 1 => {
                return Err("expected a record between the commas of the array".into());
            }
            b'\n' | b'\r' => *byte = b' ',
            other => any |= !other.is_ascii_whitespace(),
        }
    }
    Err("the array of records has no end".into())
}

/// Where the string ends that has begun before `at`.
fn string_end(text: &[u8], mut at: usize) -> usize {
    while let Some(byte) = text.get(at) {
        at += match byte {
            b'"' => return at + 1,
            b'\\' => 2,
            _ => 1,
        };
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_become_lines() {
        let lines = |text: &str| {
            let mut bytes = text.as_bytes().to_vec();
            to_lines(&mut bytes).map(|()| String::from_utf8(bytes).unwrap())
        };
        for (text, expected) in [
            ("[]", "  "),
            ("{\"a\": [1,\n2]}", "{\"a\": [1,\n2]}"),
            ("[INFO] started\n", "[INFO] started\n"),
            (" [{\"a\":\n[1,2]}\r\n,{} ]\n", "  {\"a\": [1,2]}  \n{}  \n"),
            (r#"[{"a":"],\"{"},{}]"#, " {\"a\":\"],\\\"{\"}\n{} "),
            ("[{},1]", " {}\n1 "),
        ] {
            assert_eq!(lines(text).as_deref(), Ok(expected), "{text}");
        }
        for (text, message) in [
            ("[{}", "no end"),
            ("[{\"a\":\"]", "no end"),
            ("[{},]", "between the commas"),
            ("[{},,{}]", "between the commas"),
            ("[{}] x", "behind the array"),
        ] {
            assert!(lines(text).unwrap_err().contains(message), "{text}");
        }
    }
}
