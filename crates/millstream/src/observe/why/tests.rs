use super::super::{CheckpointStatus, Need, Output, Source, WorkerStatus};
use super::*;
use crate::Extent;

const S: i64 = 1_000_000;

fn split(name: &str, holds_us: Option<i64>, silent_s: u64) -> Split {
    Split {
        name: name.into(),
        watermark_us: holds_us,
        holds_us,
        records: u64::from(holds_us.is_some()),
        silent_us: silent_s * S as u64,
        waits: silent_s > 0,
        ..Split::default()
    }
}

/// A window of a single source, up to second 10.
fn waiting(splits: Vec<Split>) -> Snapshot {
    let end_us = Some(10 * S);
    Snapshot {
        sources: vec![Source { name: "events".into(), ..Source::default() }],
        splits,
        stages: vec![StageStatus {
            stage: 2,
            inputs: vec![Input::Source(0)],
            open: vec![OpenWindow { fires_at_us: end_us, start_us: Some(0), end_us }],
            needs: vec![Need { source: 0, watermark_us: end_us }],
            ..StageStatus::default()
        }],
        ..Snapshot::default()
    }
}

#[test]
fn a_silent_split_is_named_with_the_setting_that_lets_others_go_on() {
    let snapshot = waiting(vec![split("a.csv", Some(20 * S), 0), split("b.csv", Some(3 * S), 12)]);
    let [reason] = &why(&snapshot)[..] else { panic!("one reason") };
    assert_eq!(
        reason.what,
        "window [1970-01-01 00:00:00, 00:00:10) of stage 2 waits for events (b.csv): its watermark is \
         1970-01-01 00:00:03, and must be 00:00:10, and nothing has come for 12 s"
    );
    let help = reason.help.as_deref().unwrap();
    assert!(help.contains("'scan.watermark.idle-timeout' = '10 s'"), "{help}");
    assert_eq!(reason.to_string(), format!("{}\n  help: {help}", reason.what));
    assert!(reason.wrong, "it holds back the other");
}

#[test]
fn a_partition_that_is_behind_is_told_with_its_lag() {
    let mut behind = split("clicks-1", Some(3 * S), 0);
    behind.progress = Some(Extent { done: 10, of: 1_244, bytes: false });
    let mut snapshot = waiting(vec![split("clicks-0", Some(20 * S), 0), behind]);
    let text = why(&snapshot)[0].to_string();
    let expected = "waits for events (clicks-1): its watermark is 1970-01-01 00:00:03, and must be \
                    00:00:10, and its log has 1,234 records that have not been read";
    assert!(text.ends_with(expected), "{text}");
    // All of the log has been read: more has to come.
    snapshot.splits[1].progress = Some(Extent { done: 1_244, of: 1_244, bytes: false });
    assert!(why(&snapshot)[0].to_string().ends_with("and must be 00:00:10"));
}

#[test]
fn a_window_that_is_not_due_is_nothing_wrong() {
    let is_wrong = |snapshot: &Snapshot| why(snapshot)[0].wrong;
    let mut snapshot = waiting(vec![split("a.csv", Some(3 * S), 12)]);
    assert!(!is_wrong(&snapshot), "files of the past have no time at which they must come");
    (snapshot.sources[0].live, snapshot.now_us) = (true, 9 * S);
    assert!(!is_wrong(&snapshot));
    snapshot.now_us = 16 * S;
    assert!(is_wrong(&snapshot));
    snapshot.splits[0].silent_us = 2 * S as u64;
    assert!(!is_wrong(&snapshot), "a stream may be slow");
    // The other splits wait for a split with an idle timeout, so not without end.
    let mut snapshot = waiting(vec![split("a", Some(20 * S), 0), split("b", Some(3 * S), 12)]);
    snapshot.sources[0].idle_timeout_us = Some(20 * S);
    assert!(!is_wrong(&snapshot));
}

#[test]
fn a_split_bears_the_name_of_its_table() {
    let mut snapshot = waiting(vec![split("datagen, split 0", None, 0)]);
    let name = |snapshot: &Snapshot| split_name(snapshot, &snapshot.splits[0]);
    assert_eq!(name(&snapshot), "events (datagen, split 0)");
    (snapshot.sources[0].name, snapshot.splits[0].name) = ("a.csv".into(), "./a.csv".into());
    assert_eq!(name(&snapshot), "./a.csv");
}

#[test]
fn where_no_other_is_far_enough_no_setting_helps() {
    let snapshot = waiting(vec![split("a.csv", Some(3 * S), 12), split("b.csv", None, 12)]);
    let [reason] = &why(&snapshot)[..] else { panic!("one reason") };
    assert!(reason.what.contains("waits for events (b.csv): it has had no record yet"), "{reason}");
    assert!(reason.what.contains("; and for events (a.csv): its watermark is"), "{reason}");
    assert!(!reason.help.as_deref().unwrap().contains("idle-timeout"), "{reason}");
    // While records come, it is only a matter of time.
    let snapshot = waiting(vec![split("a.csv", Some(3 * S), 0)]);
    assert_eq!(why(&snapshot)[0].help, None);
}

#[test]
fn idle_splits_are_not_waited_for_and_lateness_is_said() {
    let mut idle = split("b.csv", Some(3 * S), 12);
    idle.idle = true;
    let mut snapshot = waiting(vec![split("a.csv", Some(20 * S), 0), idle]);
    let text = why(&snapshot)[0].to_string();
    assert!(text.ends_with("is complete, and waits for its turn"), "{text}");
    snapshot.stages[0].open[0].fires_at_us = Some(3_610 * S);
    snapshot.stages[0].needs[0].watermark_us = Some(3_610 * S);
    let text = why(&snapshot)[0].to_string();
    assert!(text.contains("waits for events (a.csv)"), "{text}");
    assert!(text.contains("fires 1 h 0 min after its end: setting 'allowed_lateness'"), "{text}");
}

#[test]
fn batches_and_fired_rows_wait_for_what_keeps_the_workers() {
    let mut snapshot = waiting(vec![split("a.csv", Some(3 * S), 0)]);
    snapshot.splits[0].ready = 2;
    let text = |snapshot: &Snapshot| why(snapshot)[0].to_string();
    assert!(text(&snapshot).ends_with(", and 2 batches wait for a worker"));
    snapshot.sources[0].obstacle = Some(Obstacle::Slot);
    let credit = ", and 2 batches wait until leaders have merged earlier rows";
    assert!(text(&snapshot).ends_with(credit), "{}", text(&snapshot));
    // What is complete is held back by what its own rows wait for.
    snapshot.splits[0].holds_us = Some(20 * S);
    (snapshot.stages[0].firing, snapshot.stages[0].obstacle) = (true, Some(Obstacle::Output));
    let output = "is complete, and its rows wait until earlier rows have been written";
    assert!(text(&snapshot).ends_with(output), "{}", text(&snapshot));
    snapshot.stages[0].obstacle = None;
    assert!(text(&snapshot).ends_with("its rows are being written"));
}

#[test]
fn results_at_the_end_of_the_input_say_how_far_it_is_or_that_it_has_none() {
    let mut snapshot = waiting(vec![split("a.csv", Some(3 * S), 0)]);
    snapshot.stages[0].open = vec![OpenWindow::default()];
    let text = why(&snapshot)[0].to_string();
    assert!(text.contains("events does not end"), "{text}");
    assert!(text.contains("TUMBLE"), "{text}");
    snapshot.sources[0].bounded = true;
    snapshot.splits[0].progress = Some(Extent { done: 43, of: 100, bytes: true });
    let text = why(&snapshot)[0].to_string();
    assert!(text.ends_with("at the end of its input, of which 43 % have been read"), "{text}");
}

#[test]
fn without_a_window_it_says_what_has_come() {
    let mut snapshot = waiting(vec![split("a.csv", None, 12)]);
    snapshot.stages[0].open.clear();
    let text = why(&snapshot)[0].to_string();
    assert_eq!(
        text,
        "no window is open, and for 12 s nothing has come from events (a.csv), no record yet"
    );
    (snapshot.splits[0].waits, snapshot.records) = (false, 1_234);
    (snapshot.late_records, snapshot.bad_records) = (1_000, 234);
    let text = why(&snapshot)[0].to_string();
    let expected =
        "1,234 records have been read, of which 1,000 came too late and 234 were left out";
    assert!(text.starts_with(expected), "{text}");
    // Rows of records come as these do.
    snapshot.stages.clear();
    snapshot.outputs = vec![Output { rows: 5_000, ..Output::default() }];
    let text = why(&snapshot)[0].to_string();
    assert!(text.ends_with("; nothing holds rows back, of which 5,000 came"), "{text}");
}

#[test]
fn an_output_that_nobody_reads_and_scarce_memory_come_first() {
    let mut snapshot = waiting(vec![split("a.csv", Some(3 * S), 0)]);
    let doing = |doing, since_us| WorkerStatus { doing, since_us, ..WorkerStatus::default() };
    snapshot.workers = vec![doing(Doing::Step, 3_000_000)];
    assert!(why(&snapshot)[0].what.contains("in one step for 3.0 s"));
    snapshot.outputs = vec![Output { queued_bytes: 5_000, ..Output::default() }];
    assert!(why(&snapshot)[0].what.starts_with("5.0 kB of result rows wait"));
    snapshot.workers = vec![doing(Doing::Memory, 0)];
    assert!(why(&snapshot)[0].what.starts_with("memory is scarce"));
    snapshot.phase = Phase::Ended;
    assert!(why(&snapshot)[0].what.contains("the result is being completed"));
}

#[test]
fn a_watermark_ahead_of_the_clock_is_told_with_the_setting_that_keeps_it_back() {
    let day = 86_400 * S;
    let mut snapshot = waiting(vec![split("a", Some(2 * day), 0)]);
    (snapshot.now_us, snapshot.records, snapshot.late_records) = (day, 129, 128);
    let source = &mut snapshot.sources[0];
    (source.live, source.watermark_us) = (true, Some(2 * day));
    let first = why(&snapshot).swap_remove(0);
    assert_eq!(
        first.what,
        "128 of 129 records came too late: the watermark of events is 1970-01-03 00:00:00, \
         1 d 0 h ahead of the clock"
    );
    assert!(first.help.unwrap().contains("'watermark.max_ahead'"));
    // A replay is ahead of nothing, and where no record is late nothing is wrong.
    let told = |snapshot: &Snapshot| why(snapshot)[0].what.contains("came too late: the");
    snapshot.sources[0].live = false;
    assert!(!told(&snapshot));
    (snapshot.sources[0].live, snapshot.late_records) = (true, 0);
    assert!(!told(&snapshot));
    assert_eq!(behind_text(2_500_000), "2.5 s behind");
}

#[test]
fn times_are_short() {
    assert_eq!(time_text(1_704_110_403_500_000), "2024-01-01 12:00:03.5");
    assert_eq!(time_text(i64::MAX - 1), "9223372036854775806 µs");
    let day = 86_400 * S;
    assert_eq!(time_near(day, Some(day - 1)), "1970-01-02 00:00:00");
    assert_eq!(time_near(day + 1, Some(day)), "00:00:00.000001");
    assert_eq!(time_near(day, None), "1970-01-02 00:00:00");
    let all = [850_000, 1_230_000, 12_300_000, 245_000_000, 11_220_000_000, 190_800_000_000];
    let texts = all.map(duration);
    assert_eq!(texts, ["850 ms", "1.2 s", "12 s", "4 min 5 s", "3 h 7 min", "2 d 5 h"]);
}

/// A checkpoint that takes long says what it waits for, and in which processes.
#[test]
fn a_checkpoint_that_takes_long_says_what_it_waits_for() {
    let mut snapshot = waiting(vec![split("a.csv", Some(3 * S), 0)]);
    let mut said = |awaits: Option<Awaited>, s: u64, processes: usize| {
        let worker = |process| WorkerStatus { process, ..WorkerStatus::default() };
        snapshot.workers = (0..processes).map(worker).collect();
        let taking_us = Some(s * S as u64);
        let status = CheckpointStatus { taking_us, awaits, ..CheckpointStatus::default() };
        snapshot.checkpoints = Some(status);
        let reason = why(&snapshot).remove(0);
        (
            reason.what.split_once(": ").map_or(String::new(), |(_, waits)| waits.into()),
            reason.wrong,
        )
    };
    let stop = |processes: &[usize]| Some(Awaited::Stop(processes.to_vec()));
    let write = |processes: &[usize]| Some(Awaited::Write(processes.to_vec()));
    assert_eq!(said(stop(&[0]), 2, 1), ("workers end what they have begun".into(), false));
    assert_eq!(
        said(stop(&[2]), 20, 3),
        ("workers of process 2 end what they have begun".into(), true)
    );
    assert_eq!(said(stop(&[]), 2, 3).0, "rows from before it are on their way to outputs");
    assert_eq!(said(write(&[0]), 2, 1).0, "state is being written");
    assert_eq!(said(write(&[0, 1, 3]), 2, 4).0, "state of processes 0, 1 and 3 is being written");
    assert_eq!(
        said(Some(Awaited::Publish), 2, 1).0,
        "its last file is being written, and rows become visible"
    );
    assert!(!said(write(&[0]), 0, 1).0.contains("state"), "not yet");
}
