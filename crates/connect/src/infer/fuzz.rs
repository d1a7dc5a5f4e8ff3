//! Fuzz target: data of any content declares a table or is refused, never with a panic; the
//! declared table declares the same again.

use super::sample::Sample;
use super::{FormatKind, columns, declared};

/// Infers what `data` declares, the first byte choosing the format and how it is cut into samples.
///
/// # Panics
///
/// If the same data declare different tables, which would be a bug.
#[doc(hidden)]
pub fn fuzz_infer(data: &[u8]) {
    let (choice, content) = data.split_first().map_or((0, data), |(first, rest)| (*first, rest));
    let format = [FormatKind::Csv, FormatKind::Tabs, FormatKind::Ndjson][usize::from(choice) % 3];
    let format = if choice & 64 != 0 { FormatKind::of_bytes(content) } else { format };
    let cut = if choice & 4 != 0 { content.len() / 2 } else { content.len() };
    let infer = || {
        let sample = |bytes: &[u8], later: &[u8]| Sample {
            name: "fuzz".into(),
            head: bytes.to_vec(),
            whole: choice & 8 != 0,
            later: if later.is_empty() { Vec::new() } else { vec![later.to_vec()] },
        };
        let (head, rest) = content.split_at(cut);
        let mut samples = vec![sample(head, rest)];
        if choice & 16 != 0 {
            samples.push(sample(rest, &[]));
        }
        let found = columns("fuzz", format, &samples, &[]);
        let declared = found.and_then(|found| declared("fuzz", format, found, choice & 8 != 0));
        declared.map(|declared| declared.to_sql_with_comments("t")).map_err(|e| e.to_string())
    };
    assert_eq!(infer(), infer(), "the same data declare different tables");
}
