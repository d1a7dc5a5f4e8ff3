//! A fuzz target: whatever a sender sends, its requests are understood in one way or refused.

use super::body::chunk_bytes;
use super::request::{head_end, parse};

/// Reads the requests that `data` begins with.
///
/// # Panics
///
/// If one is accepted that does not say what was understood, which would be a bug.
#[doc(hidden)]
pub fn fuzz_http(data: &[u8]) {
    _ = chunk_bytes(data);
    let mut rest = data;
    while let Some(end) = head_end(rest) {
        let (head, behind) = rest.split_at(end);
        rest = behind;
        match parse(head) {
            Ok(understood) => {
                let text = String::from_utf8_lossy(head).to_ascii_lowercase();
                assert!(text.starts_with("post /"), "another request was accepted");
                let lengths: Vec<&str> = text
                    .lines()
                    .filter_map(|line| line.strip_prefix("content-length:"))
                    .map(str::trim)
                    .collect();
                let length = understood.length;
                let all = lengths.iter().all(|given| given.parse().ok() == length);
                assert!(all && lengths.is_empty() == length.is_none(), "the length was made up");
                let chunked = text.contains("\ntransfer-encoding");
                assert_eq!(chunked, length.is_none(), "its length is open to doubt");
                // The next one begins behind the body.
                let Some(length) = length else { return };
                let length = usize::try_from(length).unwrap_or(usize::MAX);
                rest = rest.get(length..).unwrap_or_default();
            }
            Err(answer) => {
                assert!((400..=505).contains(&answer.status), "no refusal");
                assert!(head_end(&answer.bytes(false)).is_some(), "an answer without end");
            }
        }
    }
}
