//! Files that are written, renamed, cut off and deleted while they are followed.

use std::fs::{self, OpenOptions as Writing};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::AsArray;
use arrow::datatypes::{DataType, Field, Int64Type, Schema};

use super::*;

mod resuming;

const PATIENCE: Duration = Duration::from_secs(30);

/// A directory that goes when the test ends.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("millstream-follow-{}-{number}", process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn append(&self, name: &str, text: &str) {
        let mut file = Writing::new().create(true).append(true).open(self.0.join(name)).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }

    fn written_at(&self, name: &str, second: u64) {
        let modified = std::time::UNIX_EPOCH + Duration::from_secs(1_700_000_000 + second);
        let file = Writing::new().append(true).open(self.0.join(name)).unwrap();
        file.set_modified(modified).unwrap();
    }

    fn rename(&self, from: &str, to: &str) {
        fs::rename(self.0.join(from), self.0.join(to)).unwrap();
    }

    fn table(&self, path: &str, format: &str) -> Result<FollowTable> {
        let fields = vec![Field::new("a", DataType::Int64, true)];
        let given = [("connector", "file"), ("follow", "true"), ("format", format), ("path", path)];
        let table = TableOptions::new("t", Arc::new(Schema::new(fields)), given);
        FollowTable::from_options(&TableOptions { base_dir: self.0.clone(), ..table })
    }

    fn follow(&self, path: &str, from: Position) -> Followed {
        let table = self.table(path, "csv").unwrap();
        assert!(!table.bounded() && table.live());
        self.resume(path, &from).unwrap()
    }

    /// As another run of the program goes on, from a position as a checkpoint keeps it.
    fn resume(&self, path: &str, from: &Position) -> Result<Followed> {
        let kept = serde_json::to_string(from).unwrap();
        let from = [(path.to_string(), serde_json::from_str(&kept).unwrap())].into();
        let options = OpenOptions { from, ..OpenOptions::alone(3, 0, 1) };
        let split = self.table(path, "csv")?.open(&[0], &options)?.remove(0);
        assert_eq!(split.name(), path, "as it is given");
        Ok(Followed(split))
    }

    /// Copies all files, as to another machine: with other inodes.
    fn copied(&self) -> Folder {
        let other = Folder::new();
        for entry in fs::read_dir(&self.0).unwrap() {
            let entry = entry.unwrap();
            fs::copy(entry.path(), other.0.join(entry.file_name())).unwrap();
        }
        other
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.0);
    }
}

struct Followed(Box<dyn Split>);

impl Followed {
    /// What comes now.
    fn poll(&mut self) -> Result<Vec<i64>> {
        let now_us = Instant::now().elapsed().as_micros() as i64;
        match self.0.poll_next(now_us, Waker::noop())? {
            SplitPoll::Chunk(chunk) => {
                let batch = chunk.decode()?;
                assert!(batch.num_rows() <= 3, "the batch size");
                Ok(batch.column(0).as_primitive::<Int64Type>().iter().flatten().collect())
            }
            SplitPoll::Pending { retry_at_us: Some(_) } => Ok(Vec::new()),
            SplitPoll::Pending { .. } => panic!("nobody would call"),
            SplitPoll::Ended => panic!("it never ends"),
        }
    }

    /// Waits for these numbers, in this order.
    fn expect(&mut self, numbers: &[i64]) {
        let (start, mut found) = (Instant::now(), Vec::new());
        while found.len() < numbers.len() && start.elapsed() < PATIENCE {
            found.extend(self.poll().unwrap());
        }
        assert_eq!(found, numbers);
    }

    /// Nothing comes while all files are looked at several times.
    fn nothing(&mut self) {
        let start = Instant::now();
        while start.elapsed() < 4 * LOOK {
            assert_eq!(self.poll().unwrap(), [0i64; 0]);
        }
    }

    fn fails(&mut self) -> String {
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            if let Err(error) = self.poll() {
                return error.to_string();
            }
        }
        panic!("no error");
    }
}

#[test]
fn lines_come_as_they_are_appended_and_half_lines_wait() {
    let folder = Folder::new();
    folder.append("x.csv", "");
    let mut followed = folder.follow("x.csv", Position::default());
    followed.nothing();
    folder.append("x.csv", "a");
    followed.nothing();
    folder.append("x.csv", "\n1\n2\n3\n4\n5");
    followed.expect(&[1, 2, 3, 4]);
    followed.nothing();
    folder.append("x.csv", "6\n");
    followed.expect(&[56]);
    assert_eq!(followed.0.notice(), None);
    assert_eq!(followed.0.sharing(), Sharing::Coordinator);
}

#[test]
fn a_rotated_file_is_read_to_its_end_before_the_new_one() {
    let folder = Folder::new();
    folder.append("x.csv", "a\n1\n");
    let mut followed = folder.follow("x.csv", Position::default());
    followed.expect(&[1]);
    folder.append("x.csv", "2\n");
    folder.rename("x.csv", "x.csv.1");
    folder.append("x.csv", "a\n10\n");
    // Whoever writes may have it open still.
    folder.append("x.csv.1", "3\n4");
    followed.expect(&[2, 3, 4, 10]);
    folder.append("x.csv.1", "5\n");
    fs::remove_file(folder.0.join("x.csv")).unwrap();
    followed.nothing();
    folder.append("x.csv", "a\n11\n");
    followed.expect(&[11]);
    assert_eq!(followed.0.notice(), None, "rotation is nothing special");
}

#[test]
fn a_truncated_file_is_read_from_its_beginning() {
    let folder = Folder::new();
    folder.append("x.csv", "a\n1\n2\n3");
    let mut followed = folder.follow("x.csv", Position::default());
    followed.expect(&[1, 2]);
    assert_eq!(followed.0.notice(), None);
    fs::write(folder.0.join("x.csv"), "a\n7\n").unwrap();
    followed.expect(&[7]);
    let notice = followed.0.notice().unwrap();
    assert!(notice.contains("x.csv: truncated or written anew (it has "), "{notice}");
    assert!(
        notice.contains("of which 7 had been read): it is read from its beginning"),
        "{notice}"
    );
    assert_eq!(followed.0.notice(), None, "once");
    // As long as it was, and longer, and still another.
    fs::write(folder.0.join("x.csv"), "a\n8\n").unwrap();
    followed.expect(&[8]);
    let notice = followed.0.notice().unwrap();
    assert!(notice.contains("not what had been read") || notice.contains("it has "), "{notice}");
    fs::write(folder.0.join("x.csv"), "a\n9\n10\n11\n").unwrap();
    followed.expect(&[9, 10, 11]);
    fs::write(folder.0.join("x.csv"), "").unwrap();
    followed.nothing();
    folder.append("x.csv", "a\n12\n");
    followed.expect(&[12]);
}

#[test]
fn new_files_of_a_pattern_are_found_and_renamed_ones_are_not_read_again() {
    let folder = Folder::new();
    let mut followed = folder.follow("*.csv*", Position::default());
    followed.nothing();
    folder.append("x.csv", "a\n1\n");
    followed.expect(&[1]);
    folder.append("b.csv", "a\n20\n");
    folder.append("other.txt", "a\n99\n");
    followed.expect(&[20]);
    folder.rename("x.csv", "x.csv.1");
    folder.append("x.csv.1", "2\n");
    followed.expect(&[2]);
    folder.append("x.csv", "a\n3\n");
    followed.expect(&[3]);
    fs::hard_link(folder.0.join("x.csv"), folder.0.join("y.csv")).unwrap();
    followed.nothing();
    folder.append("b.csv", "21\n");
    followed.expect(&[21]);
}

#[test]
fn files_that_are_there_come_in_the_order_in_which_they_were_written() {
    let folder = Folder::new();
    for (name, text, second) in [("b", "a\n2\n", 2), ("a", "a\n3\n", 3), ("c", "a\n1\n", 1)] {
        folder.append(name, text);
        folder.written_at(name, second);
    }
    folder.append(".hidden", "a\n0\n");
    folder.follow(".", Position::default()).expect(&[1, 2, 3]);
}

#[test]
fn any_position_and_the_rest_are_the_whole() {
    let folder = Folder::new();
    folder.append("x.csv", "\u{feff}a\n1\n2\n3\n4\n5\n6\n7\n");
    folder.append("y.csv", "a\n10\n11\n12\n13\n");
    let all = [1, 2, 3, 4, 5, 6, 7, 10, 11, 12, 13];
    for until in 0..=all.len() {
        folder.written_at("x.csv", 1);
        folder.written_at("y.csv", 2);
        let mut followed = folder.follow("*.csv", Position::default());
        let mut found = Vec::new();
        while found.len() < until {
            found.extend(followed.poll().unwrap());
        }
        let position = followed.0.position();
        drop(followed);
        let mut rest = all[found.len()..].to_vec();
        rest.push(100);
        let last = if until == 0 { "x.csv" } else { "y.csv" };
        // What was found first goes first, also after this.
        if until > 0 {
            folder.written_at("x.csv", 3);
        }
        let mut again = folder.follow("*.csv", position.clone());
        if until > 0 {
            assert_eq!(again.0.position(), position);
        }
        again.expect(&rest[..rest.len() - 1]);
        folder.append(last, "100\n");
        again.expect(&[100]);
        // As it was.
        let path = folder.0.join(last);
        let text = fs::read_to_string(&path).unwrap();
        let file = Writing::new().write(true).open(&path).unwrap();
        file.set_len(text.len() as u64 - 4).unwrap();
    }
}

#[test]
fn a_position_before_a_half_line_is_known_again() {
    let folder = Folder::new();
    folder.append("x.csv", "a\n1\n2");
    let mut followed = folder.follow("x.csv", Position::default());
    followed.expect(&[1]);
    // Each one goes on where the one before has stopped, before the line that is not whole.
    for number in 2..18 {
        let mut again = folder.follow("x.csv", followed.0.position());
        assert_eq!(again.0.position(), followed.0.position());
        // It is half a line: `2`.
        folder.append("x.csv", &format!("{number:018}\n2"));
        again.expect(&[2_000_000_000_000_000_000 + number]);
        followed = again;
    }
    assert!(fs::metadata(folder.0.join("x.csv")).unwrap().len() > 256);
}

#[test]
fn a_position_in_what_has_been_written_anew_is_the_beginning() {
    let folder = Folder::new();
    folder.append("x.csv", "a\n1\n2\n");
    let mut followed = folder.follow("x.csv", Position::default());
    followed.expect(&[1, 2]);
    let position = followed.0.position();
    fs::write(folder.0.join("x.csv"), "a\n3\n4\n5\n").unwrap();
    folder.follow("x.csv", position.clone()).expect(&[3, 4, 5]);
    fs::write(folder.0.join("x.csv"), "a\n").unwrap();
    folder.follow("x.csv", position).nothing();
}

#[test]
fn many_files_need_few_descriptors() {
    let folder = Folder::new();
    let name = |number: i64| format!("{number:04}.csv");
    let numbers: Vec<i64> = (0..OPEN_MAX as i64 + 50).collect();
    for number in &numbers {
        folder.append(&name(*number), &format!("a\n{number}\n"));
    }
    let files = folder.table("*.csv", "csv").unwrap();
    let wanted = Wanted {
        format: files.format.clone(),
        schema: files.schema(),
        projection: [0].into(),
        batch_rows: 3,
        offsets: false,
    };
    let (cursors, notices, looked) = (Vec::new(), Vec::new(), Instant::now());
    let read = files.beside.read(&[0]).unwrap();
    let naming = Naming { base: files.base.clone(), shown: Default::default() };
    let (given, files) = (files.given, files.files);
    let mut split =
        FollowSplit { name: given, files, naming, wanted, read, cursors, notices, looked };
    split.look().unwrap();
    let mut found = 0;
    while split.chunk().unwrap().is_some() {
        found += 1;
    }
    assert_eq!(found, numbers.len());
    split.look().unwrap();
    let open = split.cursors.iter().filter(|cursor| cursor.is_open()).count();
    assert_eq!(open, OPEN_MAX);
    for number in &numbers {
        folder.append(&name(*number), "7\n");
    }
    split.look().unwrap();
    while split.chunk().unwrap().is_some() {
        found += 1;
    }
    assert_eq!(found, 2 * numbers.len());
}

#[test]
fn what_cannot_be_followed_is_refused() {
    let folder = Folder::new();
    let wrong = |path: &str, format: &str| folder.table(path, format).unwrap_err().to_string();
    folder.append("x.csv", "a\n1\n");
    assert!(wrong("y.csv", "csv").contains("there is no file"));
    assert!(wrong("x.csv", "parquet").contains("a file that is followed has lines"));
    assert!(wrong("/dev/null", "csv").contains("no regular file"));
    assert!(wrong("", "csv").contains("a file needs a path"));
    fs::write(folder.0.join("x.gz"), b"\x1f\x8b\x08\x00rest").unwrap();
    let error = folder.follow("x.gz", Position::default()).fails();
    assert!(error.contains("packed with gzip"), "{error}");
    let mut followed = folder.follow("x.csv", Position::default());
    followed.expect(&[1]);
    folder.append("x.csv", "two\n");
    let error = followed.fails();
    assert!(error.contains("x.csv:3:1: expected BIGINT"), "{error}");
}

#[test]
fn a_file_or_directory_without_rights_is_an_error() {
    let folder = Folder::new();
    let inner = folder.0.join("inner");
    fs::create_dir(&inner).unwrap();
    fs::write(inner.join("x.csv"), "a\n1\n").unwrap();
    let table = folder.table("inner", "csv").unwrap();
    let mode = |mode| fs::set_permissions(&inner, fs::Permissions::from_mode(mode)).unwrap();
    mode(0);
    let opened = table.open(&[0], &OpenOptions::alone(3, 0, 1));
    // Whoever may do everything, may also read this.
    let may = fs::read_dir(&inner).is_ok();
    mode(0o700);
    match opened {
        Err(error) => assert!(error.to_string().contains("chmod"), "{error}"),
        Ok(_) => assert!(may),
    }
    fs::remove_dir_all(&inner).unwrap();
    let error = table.open(&[0], &OpenOptions::alone(3, 0, 1)).err().unwrap().to_string();
    assert!(error.contains("No such file"), "{error}");
}

#[test]
fn it_names_what_it_follows() {
    let folder = Folder::new();
    folder.append("x.csv", "");
    let described = folder.table("x.csv", "csv").unwrap().describe(&[]);
    assert!(described.ends_with("x.csv, followed (CSV, 0 of 1 column)"), "{described}");
    assert!(Path::new(&folder.0).exists());
}
