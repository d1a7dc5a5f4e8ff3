//! A bounded sample of a table's files.
//!
//! A pattern or a directory is sampled by its first and last file. A file is sampled at its
//! beginning, and, if it is large and can be read from anywhere, also in the middle and at the end.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;

use memchr::{memchr, memrchr};
use millstream_contract::{Error, Result};

use crate::input::{self, FileExtent, Regular, io_error};
use crate::source::OneFile;

/// Bytes of what a file begins with.
const HEAD_BYTES: usize = 512 << 10;
/// Bytes that are read in search of a file's first line.
const FIRST_BYTES: usize = 16 << 10;
/// Bytes of each further part.
const PART_BYTES: usize = 256 << 10;
/// If its first line is longer than the head, up to so many bytes.
const LINE_BYTES_MAX: usize = 16 << 20;
/// Files that are looked into.
const FILES: usize = 2;

/// Something of a file.
#[derive(Debug, Default)]
pub(super) struct Sample {
    /// For messages.
    pub(super) name: String,
    /// Beginning of the file; packed files unpacked, without a byte order mark.
    pub(super) head: Vec<u8>,
    /// True if `head` is the whole file.
    pub(super) whole: bool,
    /// Samples from further on, each of whole lines.
    pub(super) later: Vec<Vec<u8>>,
}

/// Samples of a table's files, and whether they are all there is.
pub(super) fn samples(files: &[OneFile]) -> Result<(Vec<Sample>, bool)> {
    let mut samples: Vec<Sample> = ends(files).map(sample).collect::<Result<_>>()?;
    let whole = files.len() <= FILES && samples.iter().all(|sample| sample.whole);
    let filled: Vec<&OneFile> = files.iter().filter(|file| is_filled(file)).collect();
    let between = filled.get(1..filled.len().saturating_sub(1)).unwrap_or_default();
    let files: [Box<dyn Iterator<Item = &&OneFile>>; FILES] =
        [Box::new(between.iter()), Box::new(between.iter().rev())];
    for (sample, files) in samples.iter_mut().zip(files).filter(|(sample, _)| sample.is_header()) {
        *sample = with_records(files)?.unwrap_or_else(|| std::mem::take(sample));
    }
    samples.dedup_by(|a, b| a.name == b.name);
    Ok((samples, whole))
}

/// The first sample that has more than a header.
fn with_records<'f>(files: impl Iterator<Item = &'f &'f OneFile>) -> Result<Option<Sample>> {
    for file in files.take(HEADERS_ALONE) {
        let sample = sample(file)?;
        if !sample.is_header() {
            return Ok(Some(sample));
        }
    }
    Ok(None)
}

impl Sample {
    /// Whether this is a line that may be the header of a CSV file, and nothing else.
    fn is_header(&self) -> bool {
        let text = self.head.trim_ascii();
        self.whole && memchr(b'\n', text).is_none() && !text.starts_with(b"{")
    }
}

/// The sampled files: the first and the last non-empty file (workers without rows leave empty
/// files). The first file if all are empty.
pub(super) fn ends(files: &[OneFile]) -> impl Iterator<Item = &OneFile> {
    let first = files.iter().position(is_filled).unwrap_or(0);
    let last = files.iter().rposition(is_filled).filter(|last| *last > first);
    std::iter::once(first).chain(last).filter_map(|at| files.get(at)).take(FILES)
}

/// Files between the first and the last that are looked into if these have nothing but a header.
const HEADERS_ALONE: usize = 100;

/// Files whose headers are looked at.
const HEADERS: usize = 1_000;

/// Files whose headers are read: all non-empty files, unless there are too many; then as [`ends`].
pub(super) fn headed(files: &[OneFile]) -> Vec<&OneFile> {
    match files.len() {
        ..=HEADERS => files.iter().filter(|file| is_filled(file)).collect(),
        _ => ends(files).collect(),
    }
}

/// Beginning of a file, up to the end of its first line.
pub(super) fn first_line(file: &OneFile) -> Result<Vec<u8>> {
    let (mut input, mut head) = (file.input()?, Vec::new());
    while memchr(b'\n', &head).is_none() && head.len() < HEAD_BYTES {
        if input.read(FIRST_BYTES, &file.name, &mut head)? == 0 {
            break;
        }
    }
    let start = if head.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
    Ok(head.split_off(start))
}

fn is_filled(file: &OneFile) -> bool {
    let metadata = Path::new(&*file.name).metadata();
    metadata.map_or(true, |metadata| !metadata.is_file() || metadata.len() > 0)
}

fn sample(file: &OneFile) -> Result<Sample> {
    let path = Path::new(&*file.name);
    let metadata = path.metadata().map_err(|error| io_error(path, &error))?;
    if !metadata.is_file() {
        return Err(read_once(&file.name));
    }
    let (file, found) = input::open(path)?;
    let Some(FileExtent { length, .. }) = found else { return Err(read_once(&path.display())) };
    let failed = |error: std::io::Error| io_error(path, &error);
    let (name, again) = (path.display().to_string(), file.try_clone().map_err(failed)?);
    let regular = Regular::new(file, name.as_str().into(), length);
    let (mut head, mut later) = (Vec::new(), Vec::new());
    let packing = regular.packing()?;
    let mut whole = match packing {
        Some(packing) => read_head(&mut regular.unpacked(packing)?, &mut head).map_err(failed)?,
        None => read_head(&mut (&again).take(length), &mut head).map_err(failed)?,
    };
    if packing.is_none() && !whole && length > (HEAD_BYTES + 4 * PART_BYTES) as u64 {
        for from in [length / 2, length - PART_BYTES as u64] {
            later.extend(part(&again, from).map_err(failed)?);
        }
    } else if packing.is_none() && !whole {
        // Not much is missing.
        (&again).take(length - head.len() as u64).read_to_end(&mut head).map_err(failed)?;
        whole = true;
    }
    if head.starts_with(b"\xef\xbb\xbf") {
        head.drain(..3);
    }
    Ok(Sample { name, head, whole, later })
}

/// Reads what a file begins with, with a line's end in it; says whether that is all.
fn read_head(bytes: &mut dyn Read, head: &mut Vec<u8>) -> std::io::Result<bool> {
    while head.len() < LINE_BYTES_MAX && (head.is_empty() || memchr(b'\n', head).is_none()) {
        let before = head.len();
        (&mut *bytes).take(HEAD_BYTES as u64).read_to_end(head)?;
        if head.len() - before < HEAD_BYTES {
            return Ok(true);
        }
    }
    // Whether it happens to end just here.
    let before = head.len();
    (&mut *bytes).take(1).read_to_end(head)?;
    Ok(head.len() == before)
}

/// Whole lines from around an offset.
fn part(file: &File, from: u64) -> std::io::Result<Option<Vec<u8>>> {
    let mut bytes = vec![0; PART_BYTES];
    let mut filled = 0;
    while filled < bytes.len() {
        match file.read_at(&mut bytes[filled..], from + filled as u64) {
            Ok(0) => break,
            Ok(got) => filled += got,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(filled);
    let lines = memchr(b'\n', &bytes).zip(memrchr(b'\n', &bytes));
    Ok(lines.map(|(first, last)| bytes[first + 1..=last.max(first)].to_vec()))
}

/// Error for an input that can be read only once, and so cannot be sampled.
pub(super) fn read_once(name: &dyn std::fmt::Display) -> Error {
    Error::Io {
        place: name.to_string(),
        message: "it is no regular file, so its columns cannot be found out before it is read"
            .into(),
        help: "declare its columns: CREATE TABLE name (…) WITH ('connector' = 'stdin', 'format' = \
               'csv'); or save it in a file"
            .into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_file_is_sampled_at_three_places_in_whole_lines() {
        let dir = crate::infer::tests::folder("sample");
        let path = dir.join("lines.csv");
        let line = |number: usize| format!("{number:09},some text\n");
        let text: String = (0..200_000).map(line).collect();
        std::fs::write(&path, &text).unwrap();
        let (samples, whole) = samples(&[OneFile::at(path.clone())]).unwrap();
        let [Sample { head, later, whole: all, .. }] = &samples[..] else { panic!("one file") };
        assert!(!whole && !all && text.as_bytes().starts_with(head));
        assert_eq!(later.len(), 2);
        for part in later {
            let part = std::str::from_utf8(part).unwrap();
            assert!(part.lines().all(|line| line.len() == 19) && part.lines().count() > 1_000);
        }
        let last = later.last().and_then(|part| part.lines().last()).unwrap_or_default();
        assert_eq!(last, line(199_999).trim_end());
    }

    trait Lines {
        fn lines(&self) -> std::str::Lines<'_>;
    }
    impl Lines for Vec<u8> {
        fn lines(&self) -> std::str::Lines<'_> {
            std::str::from_utf8(self).unwrap().lines()
        }
    }

    #[test]
    fn small_files_and_packed_ones_are_read_from_the_front() {
        use std::io::Write;
        let dir = crate::infer::tests::folder("packed");
        let text = "\u{feff}a,b\n1,2\n".to_string();
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), Default::default());
        packer.write_all(text.as_bytes()).unwrap();
        std::fs::write(dir.join("a.csv.gz"), packer.finish().unwrap()).unwrap();
        std::fs::write(dir.join("b.csv"), &text).unwrap();
        for name in ["a.csv.gz", "b.csv"] {
            let (samples, whole) = samples(&[OneFile::at(dir.join(name))]).unwrap();
            assert!(whole && samples[0].head == b"a,b\n1,2\n", "{name}");
        }
        // A line longer than the head is still read whole.
        let long = format!("{}\n{}", "x".repeat(HEAD_BYTES + 5), "y".repeat(3 * HEAD_BYTES));
        std::fs::write(dir.join("long.csv"), &long).unwrap();
        let (samples, _) = samples(&[OneFile::at(dir.join("long.csv"))]).unwrap();
        assert!(memchr(b'\n', &samples[0].head).is_some());
    }

    #[test]
    fn what_is_no_regular_file_is_refused() {
        let error = samples(&[OneFile::at("/dev/null".into())]).unwrap_err().to_string();
        assert!(error.contains("no regular file") && error.contains("CREATE TABLE"), "{error}");
    }
}
