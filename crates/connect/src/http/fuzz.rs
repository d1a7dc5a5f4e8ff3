//! A fuzz target: whatever a sender sends, its requests are understood in one way or refused.

use super::body::chunk_bytes;
use super::message::Head;
use super::port::LIMITS;
use super::request::post;

/// Reads the requests that `data` begins with.
///
/// # Panics
///
/// If one is accepted that does not say what was understood, which would be a bug.
#[doc(hidden)]
pub fn fuzz_http(data: &[u8]) {
    _ = chunk_bytes(data);
    let mut rest = data;
    loop {
        let parsed = Head::parse(rest);
        let end = parsed.as_ref().map_or(0, |head| head.as_ref().map_or(0, |(_, end)| *end));
        let (head, behind) = rest.split_at(end);
        rest = behind;
        let understood = match parsed {
            Ok(None) => return,
            Ok(Some((head, _))) => post(&head),
            Err(answer) => Err(answer),
        };
        match understood {
            Ok(understood) => {
                let text = String::from_utf8_lossy(head.trim_ascii_start()).to_ascii_lowercase();
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
                assert!(
                    answer.head(false, LIMITS.words).ends_with("\r\n\r\n"),
                    "an answer without end"
                );
                if end == 0 {
                    return;
                }
            }
        }
    }
}
