//! Tests of tables of several files, of packed files, and of positions.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use arrow::array::AsArray;
use arrow::datatypes::{DataType, Field, Int64Type, Schema};
use millstream_contract::table::Chunk;

use super::*;

/// A directory of its own for each test, which goes away with it.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Scratch {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("millstream-source-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }

    fn write(&self, name: &str, content: &[u8]) {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn options(&self, path: &str) -> TableOptions {
        let options = [("connector", "file"), ("format", "csv"), ("path", path)];
        let schema = Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, true)]));
        TableOptions { base_dir: self.0.clone(), ..TableOptions::new("t", schema, options) }
    }

    fn table(&self, path: &str) -> Result<FileTable> {
        FileTable::from_options(&self.options(path))
    }

    fn names(&self, path: &str) -> Vec<String> {
        self.table(path).unwrap().splits().unwrap().into_iter().map(|spec| spec.name).collect()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn values(chunk: Box<dyn Chunk>) -> Vec<i64> {
    chunk.decode().unwrap().column(0).as_primitive::<Int64Type>().values().to_vec()
}

/// The values of the next chunk.
fn next(split: &mut dyn Split) -> Option<Vec<i64>> {
    match split.poll_next(0, Waker::noop()).unwrap() {
        SplitPoll::Chunk(chunk) => Some(values(chunk)),
        SplitPoll::Pending { .. } => panic!("a file that was written long ago is there"),
        SplitPoll::Ended => None,
    }
}

fn rest(split: &mut dyn Split) -> Vec<i64> {
    std::iter::from_fn(|| next(split)).flatten().collect()
}

fn read(table: &FileTable) -> Vec<Vec<i64>> {
    let mut splits = table.open(&[0], &OpenOptions::alone(100, 0, 1)).unwrap();
    splits.iter_mut().map(|split| rest(&mut **split)).collect()
}

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), Default::default());
    packer.write_all(text).unwrap();
    packer.finish().unwrap()
}

fn numbers(from: i64, to: i64) -> Vec<u8> {
    (from..to).flat_map(|n| format!("{n}\n").into_bytes()).collect()
}

#[test]
fn a_pattern_or_a_directory_is_its_files_in_the_order_of_their_names() {
    let dir = Scratch::new();
    for (name, text) in [
        ("in/b.csv", "3\n"),
        ("in/a.csv", "1\n2\n"),
        ("in/c.txt", "4\n"),
        ("in/.hidden.csv", "5\n"),
        ("in/_SUCCESS", ""),
        ("in/deep/d.csv", "6\n"),
    ] {
        dir.write(name, text.as_bytes());
    }
    assert_eq!(dir.names("in"), ["in/a.csv", "in/b.csv", "in/c.txt"]);
    assert_eq!(dir.names("in/*.csv"), ["in/a.csv", "in/b.csv"]);
    assert_eq!(dir.names("in/[bc].*"), ["in/b.csv", "in/c.txt"]);
    assert_eq!(dir.names("in/**/*.csv"), ["in/a.csv", "in/b.csv", "in/deep/d.csv"]);
    assert_eq!(read(&dir.table("in/?.csv").unwrap()), [vec![1, 2], vec![3]]);
    // A file whose name looks like a pattern is that file.
    dir.write("in/[x].csv", b"7\n");
    assert_eq!(read(&dir.table("in/[x].csv").unwrap()), [vec![7]]);
}

#[test]
fn a_path_without_files_is_explained() {
    let dir = Scratch::new();
    dir.write("empty/_x", b"");
    dir.write("parts/day=1/x.csv", b"1\n");
    for (path, expected) in [
        ("parts/", "'parts/**/*' names the files in all of them; with PARTITIONED BY (day, …)"),
        ("no/*.csv", "no file matches"),
        ("empty", "has no files"),
        ("empty/***", "no pattern of paths"),
        ("empyt", "did you mean"),
        ("~/x.csv", "write the whole path"),
        ("s3://bucket/x.csv", "s3:// is elsewhere"),
    ] {
        let error = dir.table(path).unwrap_err().to_string();
        assert!(error.contains(expected), "{path}: {error}");
    }
}

/// All processes read what process 0 has found, though files come and grow meanwhile.
#[test]
fn files_that_come_later_are_not_read() {
    let dir = Scratch::new();
    dir.write("a.csv", b"1\n");
    dir.write("b.csv", b"2\n");
    let table = dir.table("*.csv").unwrap();
    let splits = table.splits().unwrap();
    dir.write("c.csv", b"3\n");
    let mut file = fs::OpenOptions::new().append(true).open(dir.0.join("a.csv")).unwrap();
    file.write_all(b"4\n").unwrap();
    let told = table.with_splits(&splits).unwrap();
    let options = OpenOptions { processes: 2, ..OpenOptions::alone(100, 0, 1) };
    let mut opened = told.open(&[0], &options).unwrap();
    let found: Vec<Vec<i64>> = opened.iter_mut().map(|split| rest(&mut **split)).collect();
    assert_eq!(found, [vec![1], vec![2]]);
    assert_eq!(read(&table), [vec![1, 4], vec![2], vec![3]]);
}

/// Of a file of any kind, what was read before a position and what is read from it are the whole.
#[test]
fn any_position_plus_the_rest_is_the_whole() {
    let dir = Scratch::new();
    let text = [b"n\n".to_vec(), numbers(0, 5000)].concat();
    dir.write("plain.csv", &text);
    dir.write("packed.csv.gz", &gzip(&text));
    dir.write("many/a.csv", &text);
    dir.write("many/b.csv.gz", &gzip(&text));
    for path in ["plain.csv", "packed.csv.gz", "many"] {
        let table = dir.table(path).unwrap();
        for batch_rows in [61, 1000] {
            let options = OpenOptions::alone(batch_rows, 0, 1);
            let splits = table.open(&[0], &options).unwrap().len();
            for split in 0..splits {
                let mut whole = table.open(&[0], &options).unwrap().remove(split);
                let beginnings = vec![(0, Position::default()), (0, whole.position())];
                let (mut before, mut places) = (Vec::new(), beginnings);
                while let Some(values) = next(&mut *whole) {
                    before.extend(values);
                    places.push((before.len(), whole.position()));
                }
                assert_eq!(before, (0..5000).collect::<Vec<i64>>(), "{path}");
                assert!(places.len() > 5, "{path}: {} chunks", places.len());
                for (rows, position) in places {
                    let from = [(whole.name().to_string(), position)].into();
                    let options = OpenOptions { from, ..options.clone() };
                    let mut again = table.open(&[0], &options).unwrap().remove(split);
                    assert_eq!(rest(&mut *again), before[rows..], "{path} from row {rows}");
                }
            }
        }
    }
}

#[test]
fn what_is_packed_is_unpacked_by_its_bytes_and_checked_by_its_name() {
    let dir = Scratch::new();
    let parts = [gzip(b"n\n1\n"), gzip(b"2\n")].concat();
    dir.write("a.csv.gz", &parts);
    dir.write("b.dat", &parts);
    dir.write("c.zst", &zstd::encode_all(&b"3\n4\n"[..], 1).unwrap());
    assert_eq!(read(&dir.table("a.csv.gz").unwrap()), [vec![1, 2]]);
    assert_eq!(read(&dir.table("b.dat").unwrap()), [vec![1, 2]]);
    assert_eq!(read(&dir.table("c.zst").unwrap()), [vec![3, 4]]);
    for (name, bytes, expected) in [
        ("cut.csv.gz", &parts[..parts.len() - 3], "ends in the middle of its gzip data"),
        ("empty.csv.gz", &[][..], "it is no gzip file"),
        ("plain.csv.gz", &b"1\n"[..], "it is no gzip file"),
    ] {
        dir.write(name, bytes);
        let table = dir.table(name).unwrap();
        let opened = table.open(&[0], &OpenOptions::alone(100, 0, 1));
        let error = opened.and_then(|mut splits| {
            loop {
                if let SplitPoll::Ended = splits[0].poll_next(0, Waker::noop())? {
                    return Ok(());
                }
            }
        });
        let error = error.unwrap_err().to_string();
        assert!(error.contains(expected) && error.contains(name), "{name}: {error}");
    }
}

#[test]
fn patterns_match_as_in_a_shell() {
    let scratch = Scratch::new();
    for name in ["x.csv", "a/x.csv", "a/b/x.csv", "a/a/y.csv", ".h/x.csv", "a/.x.csv", "_x.csv"] {
        scratch.write(name, b"n\n1\n");
    }
    for (pattern, expected) in [
        ("*.csv", &["_x.csv", "x.csv"][..]),
        ("*/x.csv", &["a/x.csv"]),
        ("**/x.csv", &["a/b/x.csv", "a/x.csv", "x.csv"]),
        ("**/**/a/**/*.csv", &["a/a/y.csv", "a/b/x.csv", "a/x.csv"]),
        ("a/**", &["a/a/y.csv", "a/b/x.csv", "a/x.csv"]),
        ("a/*/../x.csv", &["a/a/../x.csv", "a/b/../x.csv"]),
        (".h/*", &[".h/x.csv"]),
        (".*/x.csv", &[".h/x.csv"]),
        ("a/.*", &["a/.x.csv"]),
        ("[ab]/?.csv", &["a/x.csv"]),
        // A file has no directory below, and a directory is no file.
        ("x.csv/*", &[]),
        ("?", &[]),
        ("*/", &[]),
    ] {
        let found = scratch.table(pattern).and_then(|table| table.splits());
        match found {
            Ok(_) => assert_eq!(scratch.names(pattern), expected, "{pattern}"),
            Err(error) => {
                assert!(expected.is_empty() && error.to_string().contains("no file"), "{error}");
            }
        }
    }
}

#[test]
fn linked_directories_are_entered_by_their_names_only() {
    let scratch = Scratch::new();
    scratch.write("s/x.csv", b"n\n1\n");
    scratch.write("other/y.csv", b"n\n2\n");
    let link = |to: &str, at: &str| std::os::unix::fs::symlink(to, scratch.0.join(at)).unwrap();
    link(".", "s/loop");
    link("../other", "s/linked");
    link("../other/y.csv", "s/file.csv");
    assert_eq!(scratch.names("s/**/*.csv"), ["s/file.csv", "s/x.csv"]);
    assert_eq!(scratch.names("s/*/y.csv"), ["s/linked/y.csv"]);
    assert_eq!(scratch.names("s/linked/**/*.csv"), ["s/linked/y.csv"]);
}

#[test]
fn a_link_that_leads_nowhere_is_an_error() {
    let scratch = Scratch::new();
    scratch.write("s/x.csv", b"n\n1\n");
    scratch.write("k=1/x.csv", b"n\n1\n");
    for at in ["s/y.csv", "k=2"] {
        std::os::unix::fs::symlink("gone", scratch.0.join(at)).unwrap();
    }
    for path in ["s", "s/*.csv", "**/*.csv", "s/y.csv", "s/y*"] {
        let error = scratch.table(path).unwrap_err().to_string();
        assert!(error.contains("leads nowhere, to 'gone'"), "{path}: {error}");
        assert!(error.contains("y.csv"), "{path}: {error}");
    }
    assert_eq!(scratch.names("s/x*.csv"), ["s/x.csv"]);
    // Nothing is behind a directory that is not there.
    assert_eq!(scratch.names("k=*/*.csv"), ["k=1/x.csv"]);
}

/// Whoever follows files waits for what is not there yet.
#[test]
fn a_link_that_leads_nowhere_is_waited_for() {
    let scratch = Scratch::new();
    scratch.write("x.csv", b"n\n1\n");
    std::os::unix::fs::symlink("gone", scratch.0.join("y.csv")).unwrap();
    let options = scratch.options("*.csv");
    let files = Files::named(&Options::new(&options), Some("*.csv")).unwrap();
    assert_eq!(files.list_for_now().unwrap().len(), 1);
    assert!(files.list().is_err());
}
