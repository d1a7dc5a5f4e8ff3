//! Tests of files that are written, replaced or truncated while a job opens and reads them.

use std::fs::OpenOptions as Open;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

use millstream_contract::Error;
use millstream_contract::table::{Sharing, SplitSpec};

use super::*;

/// A file of its own for each test, which goes away with it.
struct Scratch(PathBuf);

impl Scratch {
    fn new(content: &str) -> Scratch {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("millstream-csv-{}-{number}.csv", std::process::id());
        let scratch = Scratch(std::env::temp_dir().join(name));
        scratch.write(content);
        scratch
    }

    fn write(&self, content: &str) {
        std::fs::write(&self.0, content).unwrap();
    }

    fn append(&self, content: &str) {
        let mut file = Open::new().append(true).open(&self.0).unwrap();
        file.write_all(content.as_bytes()).unwrap();
    }

    /// As if written a minute ago.
    fn age(&self) {
        let file = Open::new().write(true).open(&self.0).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(60)).unwrap();
    }

    /// Another file of this name.
    fn replace(&self, content: &str) {
        let new = self.0.with_extension("new");
        std::fs::write(&new, content).unwrap();
        std::fs::rename(&new, &self.0).unwrap();
    }

    fn table(&self) -> FileTable {
        table(&self.0)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn table(path: &Path) -> FileTable {
    table_of(path, &Dialect::default())
}

fn table_of(path: &Path, dialect: &Dialect) -> FileTable {
    let schema = schema(&[("a", DataType::Int64, true)]);
    in_memory("a.csv", "", schema, dialect).of_file(path)
}

fn several() -> OpenOptions {
    OpenOptions { processes: 2, ..OpenOptions::alone(100, 0, 1) }
}

fn open(table: &dyn Table, options: &OpenOptions) -> Result<Box<dyn Split>> {
    Ok(table.open(&[0], options)?.remove(0))
}

/// The values of all chunks, by chunk.
fn rest(split: &mut dyn Split) -> Result<Vec<Vec<i64>>> {
    let mut values = Vec::new();
    loop {
        match split.poll_next(0, Waker::noop())? {
            SplitPoll::Ended => return Ok(values),
            SplitPoll::Pending { .. } => thread::sleep(Duration::from_millis(1)),
            SplitPoll::Chunk(chunk) => {
                let batch = chunk.decode()?;
                values.push(batch.column(0).as_primitive::<Int64Type>().values().to_vec());
            }
        }
    }
}

fn read(table: &dyn Table, options: &OpenOptions) -> Result<Vec<i64>> {
    Ok(rest(&mut *open(table, options)?)?.concat())
}

/// What has been in a file when its splits were asked for is read by every process, though the
/// file grows.
#[test]
fn several_processes_read_as_much_of_a_file_as_one_of_them_has_found() {
    let file = Scratch::new("1\n2\n");
    let table = file.table();
    let splits = table.splits().unwrap();
    assert_eq!(splits[0].length, Some(4));
    file.append("3\n");
    let as_told = table.with_splits(&splits).unwrap();
    assert_eq!(open(&*as_told, &several()).unwrap().extent(), Some(4));
    assert_eq!(read(&*as_told, &several()).unwrap(), [1, 2]);
    assert_eq!(read(&table, &several()).unwrap(), [1, 2, 3]);
    // As much as there was when it was opened, also alone.
    let mut split = open(&table, &OpenOptions::alone(1, 0, 1)).unwrap();
    file.append("4\n");
    assert_eq!(rest(&mut *split).unwrap().concat(), [1, 2, 3]);
}

#[test]
fn a_file_that_shrinks_is_an_error_that_says_by_how_much() {
    let lines: String = (0..100_000).map(|i| format!("{i:06}\n")).collect();
    for processes in [1, 2] {
        let options = OpenOptions { processes, ..OpenOptions::alone(100, 0, 1) };
        let file = Scratch::new(&lines);
        let table = file.table();
        let mut split = open(&table, &options).unwrap();
        // Some of it has been read, and some ahead.
        assert!(matches!(split.poll_next(0, Waker::noop()).unwrap(), SplitPoll::Chunk(_)));
        Open::new().write(true).open(&file.0).unwrap().set_len(350_000).unwrap();
        let error = rest(&mut *split).unwrap_err();
        assert!(matches!(error, Error::Io { .. }), "{error:?}");
        let error = error.to_string();
        let expected = "a.csv: it became shorter while it was read: expected 700000 bytes, found \
                        350000\n  help: ";
        assert!(error.starts_with(expected), "{error}");
        // Truncated and written anew.
        let mut split = open(&table, &options).unwrap();
        file.write("1\n");
        let error = rest(&mut *split).unwrap_err().to_string();
        assert!(error.contains("expected 350000 bytes, found "), "{error}");
    }
    let file = Scratch::new("1\n2\n");
    let table = file.table();
    let as_told = table.with_splits(&table.splits().unwrap()).unwrap();
    file.write("1\n");
    let error = read(&*as_told, &several()).unwrap_err().to_string();
    assert!(error.contains("expected 4 bytes, found 2"), "{error}");
}

/// The last line has no end where the extent is. It is completed with what comes behind, in a chunk
/// of its own, whether that comes or not.
#[test]
fn a_last_line_without_an_end_is_read_to_its_end() {
    for (later, last) in [("3\n4\n5", 23), ("3", 23), ("", 2), ("\n", 2), ("3\r\n", 23)] {
        let file = Scratch::new("1\n2");
        file.age();
        let mut split = open(&file.table(), &several()).unwrap();
        file.append(later);
        assert_eq!(rest(&mut *split).unwrap(), [vec![1], vec![last]], "{later:?}");
    }
    // Also within quotes, where the extent is at the end of a line.
    let file = Scratch::new("1\n\"2\n");
    let mut split = open(&file.table(), &several()).unwrap();
    file.append("\"\n3\n");
    assert_eq!(rest(&mut *split).unwrap(), [vec![1], vec![2]]);
}

/// What was written just now may go on in a moment.
#[test]
fn a_last_line_that_has_just_been_written_is_waited_for() {
    let file = Scratch::new("1\n2");
    let mut split = open(&file.table(), &several()).unwrap();
    let chunk = |split: &mut Box<dyn Split>| split.poll_next(5, Waker::noop()).unwrap();
    assert!(matches!(chunk(&mut split), SplitPoll::Chunk(_)));
    let SplitPoll::Pending { retry_at_us: Some(at) } = chunk(&mut split) else {
        panic!("it does not wait");
    };
    assert!(at > 5);
    file.append("3");
    assert!(matches!(chunk(&mut split), SplitPoll::Pending { .. }));
    file.age();
    assert_eq!(rest(&mut *split).unwrap(), [[23]]);
}

/// Half lines at high speed: only whole records are read, and all that were there.
#[test]
fn a_file_that_grows_all_the_time_has_no_half_records() {
    let file = Scratch::new("");
    let mut appending = Open::new().append(true).open(&file.0).unwrap();
    let writer = thread::spawn(move || {
        for number in 0..200_000_u64 {
            // Ten digits in two halves: half a number is another number.
            let line = format!("{}\n", 1_000_000_000 + number);
            appending.write_all(&line.as_bytes()[..5]).unwrap();
            appending.write_all(&line.as_bytes()[5..]).unwrap();
        }
    });
    let (mut unfinished, mut rounds) = (0, 0);
    while !writer.is_finished() {
        let before = std::fs::metadata(&file.0).unwrap().len();
        let split = open(&file.table(), &several());
        let mut split = split.unwrap();
        unfinished += u32::from(!split.extent().unwrap().is_multiple_of(11));
        let extent = split.extent().unwrap();
        let values = rest(&mut *split).unwrap().concat();
        let expected: Vec<i64> = (0..values.len() as i64).map(|n| 1_000_000_000 + n).collect();
        assert_eq!(values, expected);
        assert!(extent >= before && values.len() as u64 == extent.div_ceil(11));
        rounds += 1;
    }
    writer.join().unwrap();
    assert!(rounds < 5 || unfinished > 0, "{rounds} rounds never met half a line");
}

#[test]
fn a_file_that_is_replaced_while_processes_start_is_an_error() {
    let file = Scratch::new("1\n2\n");
    let ours = file.table();
    let splits = ours.splits().unwrap();
    let (ours, theirs) =
        (ours.with_splits(&splits).unwrap(), file.table().with_splits(&splits).unwrap());
    let other = OpenOptions { process: 1, ..several() };
    file.replace("1\n2\n3\n");
    let error = open(&*theirs, &other).err().unwrap().to_string();
    assert!(error.starts_with("a.csv: it was replaced by another file while"), "{error}");
    // Process 0 has it open, so no other file gets its number.
    for _ in 0..20 {
        file.replace("1\n2\n3\n");
        assert!(open(&*theirs, &other).is_err());
    }
    assert_eq!(read(&*ours, &several()).unwrap(), [1, 2]);
    // In its place, of the same length.
    let ours = file.table();
    let theirs = file.table().with_splits(&ours.splits().unwrap()).unwrap();
    file.write("7\n8\n9\n");
    file.age();
    let error = open(&*theirs, &other).err().unwrap().to_string();
    assert!(error.starts_with("a.csv: it was written anew while"), "{error}");
}

/// Files of `/proc` say that they are empty, those of `/sys` that they have a page.
#[test]
fn what_does_not_tell_its_length_is_read_by_one_process() {
    for path in ["/dev/stdin", "/proc/self/status", "/sys/kernel/mm/transparent_hugepage/enabled"] {
        if !Path::new(path).exists() {
            continue;
        }
        let table = table(Path::new(path));
        let alone = SplitSpec { name: "a.csv".into(), length: None, file: None, packed: false };
        assert_eq!(table.splits().unwrap(), std::slice::from_ref(&alone), "{path}");
        let as_told = table.with_splits(std::slice::from_ref(&alone)).unwrap();
        let other = OpenOptions { process: 1, ..several() };
        let mut split = open(&*as_told, &other).unwrap();
        assert_eq!(split.sharing(), Sharing::Coordinator);
        assert!(rest(&mut *split).unwrap().is_empty());
    }
    // There, each line of it is a record.
    let schema = schema(&[("a", DataType::Utf8, true)]);
    let mut dialect = Dialect { quote: None, delimiter: 1, ..Dialect::default() };
    dialect.header = Header::Absent;
    let status = Path::new("/proc/self/status");
    let table = in_memory("status", "", schema, &dialect).of_file(status);
    for processes in [1, 2] {
        let options = OpenOptions { processes, ..OpenOptions::alone(100, 0, 1) };
        let table = table.with_splits(&table.splits().unwrap()).unwrap();
        let mut split = open(&*table, &options).unwrap();
        let mut rows = 0;
        loop {
            match split.poll_next(0, Waker::noop()).unwrap() {
                SplitPoll::Ended => break,
                SplitPoll::Pending { .. } => thread::sleep(Duration::from_millis(1)),
                SplitPoll::Chunk(chunk) => rows += chunk.decode().unwrap().num_rows(),
            }
        }
        let lines = std::fs::read_to_string("/proc/self/status").unwrap().lines().count();
        assert_eq!(rows, lines);
    }
}

/// Whether a quote is closed may show only behind the extent. What stands before is read all the
/// same, with the record that the extent cuts.
#[test]
fn an_open_quote_before_the_end_of_a_file_that_grows_takes_nothing_along() {
    let file = Scratch::new("1\n\"2\n3\n4");
    let table = table_of(&file.0, &Dialect { skip_errors: true, ..Dialect::default() });
    let splits = table.splits().unwrap();
    file.append("5\n\"6\"\n7\n");
    let as_told = table.with_splits(&splits).unwrap();
    for options in [several(), OpenOptions::alone(1, 0, 1)] {
        assert_eq!(read(&*as_told, &options).unwrap(), [1, 3, 45]);
        assert_eq!(read(&table, &options).unwrap(), [1, 3, 45, 6, 7]);
    }
}
