//! Followed files between two runs of the program.

use super::*;

/// A line of a log, longer than the bytes by which a file is known, if it is repeated.
fn lines(numbers: std::ops::Range<i64>) -> String {
    numbers.map(|n| format!("{n:030}\n")).collect()
}

/// While no job runs, files grow, come, are rotated, and are moved to another machine.
#[test]
fn each_line_is_read_once_whatever_happens_between_two_jobs() {
    let mut folder = Folder::new();
    folder.append("x.log", &format!("a\n{}", lines(0..20)));
    folder.append("y.log", "a\n1000\n10");
    folder.written_at("x.log", 1);
    folder.written_at("y.log", 2);
    let mut followed = folder.follow("*.log", Position::default());
    followed.expect(&(0..20).chain([1000]).collect::<Vec<_>>());
    for round in 0..4 {
        let position = followed.0.position();
        drop(followed);
        let next = 20 + 20 * round;
        folder.append("x.log", &lines(next..next + 10));
        folder.append("y.log", &format!("{round}\n10"));
        match round {
            0 => {}
            // Rotated, within the pattern and out of it.
            1 => folder.rename("x.log", "x.old.log"),
            2 => folder.rename("x.log", "x.log.1"),
            _ => {
                let copy = folder.copied();
                // The other inodes are not all free for others.
                folder = copy;
            }
        }
        folder.append("x.log", if [1, 2].contains(&round) { "a\n" } else { "" });
        folder.append("x.log", &lines(next + 10..next + 20));
        let new = format!("z{round}.log");
        folder.append(&new, &format!("a\n{}\n", 2000 + round));
        followed = folder.resume("*.log", &position).unwrap();
        let mut expected: Vec<i64> = (next..next + 20).chain([100 + round, 2000 + round]).collect();
        let mut found = Vec::new();
        let start = Instant::now();
        while found.len() < expected.len() && start.elapsed() < PATIENCE {
            found.extend(followed.poll().unwrap());
        }
        found.sort_unstable();
        expected.sort_unstable();
        assert_eq!(found, expected, "round {round}");
        followed.nothing();
        assert_eq!(followed.0.notice(), None, "round {round}");
        if round == 1 {
            fs::remove_file(folder.0.join("x.old.log")).unwrap();
            // It is looked at until it has been quiet for a while.
            let start = Instant::now();
            while start.elapsed() < Duration::from_secs(2) {
                assert_eq!(followed.poll().unwrap(), [0i64; 0]);
            }
            folder.append("y.log", "9\n10");
            followed.expect(&[109]);
        }
    }
}

/// The first bytes are the same, and what was read last is not: it is another file.
#[test]
fn a_file_that_begins_alike_is_another() {
    let folder = Folder::new();
    folder.append("x.log", &format!("a\n{}", lines(0..30)));
    let mut followed = folder.follow("x.log", Position::default());
    followed.expect(&(0..30).collect::<Vec<_>>());
    let position = followed.0.position();
    drop(followed);
    fs::write(folder.0.join("x.log"), format!("a\n{}{}", lines(0..20), lines(50..70))).unwrap();
    let mut again = folder.resume("x.log", &position).unwrap();
    again.expect(&(0..20).chain(50..70).collect::<Vec<_>>());
    let notice = again.0.notice().unwrap();
    assert!(notice.contains("x.log: written anew since the job stopped"), "{notice}");
}

#[test]
fn a_followed_file_that_is_gone_is_an_error_if_its_lines_were_not_read() {
    let folder = Folder::new();
    folder.append("x.log", "a\n1\n2\n3\n4\n");
    folder.append("y.log", "a\n10\n");
    folder.written_at("y.log", 1);
    let mut followed = folder.follow("*.log", Position::default());
    followed.expect(&[10, 1, 2, 3]);
    let half = followed.0.position();
    followed.expect(&[4]);
    let whole = followed.0.position();
    drop(followed);
    folder.rename("x.log", ".x");
    let back = folder.resume("*.log", &half).map(|mut found| found.expect(&[4]));
    back.unwrap();
    fs::remove_file(folder.0.join(".x")).unwrap();
    let error = folder.resume("*.log", &half).err().unwrap().to_string();
    assert!(
        error.contains("x.log: it is gone, and of its 10 bytes the job has read only 8"),
        "{error}"
    );
    assert!(error.contains("help: put the file back"), "{error}");
    let mut again = folder.resume("*.log", &whole).unwrap();
    let notice = again.0.notice().unwrap();
    assert!(notice.contains("x.log: gone since the job stopped; its first 10 bytes"), "{notice}");
    assert_eq!(again.0.notice(), None);
    folder.append("x.log", "a\n5\n");
    folder.append("y.log", "11\n");
    again.expect(&[11, 5]);
}

#[test]
fn a_damaged_position_of_followed_files_does_no_harm() {
    let folder = Folder::new();
    folder.append("x.log", &format!("a\n{}", lines(0..9)));
    let mut followed = folder.follow("x.log", Position::default());
    followed.expect(&(0..9).collect::<Vec<_>>());
    let good = followed.0.position().0;
    for at in 0..good.len() {
        for number in [0, 1, u64::MAX, 1 << 62] {
            let mut numbers = good.clone();
            numbers[at] = number;
            for numbers in [numbers.clone(), numbers[..at].to_vec()] {
                if let Ok(mut again) = folder.resume("x.log", &Position(numbers)) {
                    _ = again.poll();
                }
            }
        }
    }
}
