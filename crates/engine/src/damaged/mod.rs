//! Tests of what a leader does with messages that break the protocol.

mod relay;

use std::cmp::Ordering;
use std::panic::catch_unwind;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};

use crate::network::{CREDITED, HEAD_BYTES, Head, Kind, MORE, decode_rows, encode_rows};
use crate::plan::Plan;
use crate::settings::{Exchange, FragmentMode, Settings};
use crate::support::{self, Random, query, records, table};
use relay::{Came, RelayChannel, run};

/// How what a process has for the leader of another goes there.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Form {
    Eager,
    /// Few keys: segments are small.
    Packed,
    Passed,
    Exchanged,
}

const FORMS: [Form; 4] = [Form::Eager, Form::Packed, Form::Passed, Form::Exchanged];

/// A job of windows over keys with texts, and its right rows.
fn job(form: Form, workers: usize) -> (Plan, Settings, Vec<String>) {
    let mut random = Random::new(5);
    let keys = if form == Form::Packed { 2 } else { 40 };
    let data = records(&mut random, 4, 300, keys);
    let query = query(table(&data, &mut random, 40), Some(500), 100_000);
    let fragment_mode = match form {
        Form::Passed => FragmentMode::PassThrough,
        _ => FragmentMode::Aggregate,
    };
    let exchange = match form {
        Form::Exchanged => Exchange::Interleaved,
        _ => Exchange::LateMerge,
    };
    let memory_bytes = 64 << 20;
    let settings =
        Settings { workers, memory_bytes, fragment_mode, exchange, ..Settings::default() };
    let alone = Settings { exchange: Exchange::LateMerge, ..settings.clone() };
    let rows = support::run(&query, &alone).1.expect("a good job");
    (query, settings, rows)
}

/// A job whose messages are handed on as they are ends well, and has what the tests below change.
#[test]
fn what_is_only_handed_on_is_merged() {
    for (form, workers) in FORMS.into_iter().flat_map(|form| [(form, 1), (form, 2)]) {
        let (query, settings, expected) = job(form, workers);
        let (mut kinds, mut lanes, mut packed) = (Vec::new(), 0, 0);
        let Came { ends, rows } = run(&query, &settings, 3, &mut |way, message| {
            match way.channel.cmp(&workers) {
                Ordering::Less => {
                    packed += usize::from(is_packed(&message));
                    kinds.push(Head::decode(&message).unwrap().0.kind);
                }
                Ordering::Equal => {}
                Ordering::Greater => lanes += 1,
            }
            vec![(way, message)]
        });
        assert!(ends.iter().all(|end| matches!(end, Some(Ok(())))), "{form:?}: {ends:?}");
        assert_eq!(rows, expected, "{form:?}");
        let has = |kind| kinds.contains(&kind);
        let found = match form {
            Form::Eager => has(Kind::Rows) && has(Kind::Arena) && !has(Kind::Passed),
            Form::Packed => packed > 5 && !has(Kind::Passed),
            Form::Passed => has(Kind::Passed),
            Form::Exchanged => lanes > 10 && kinds.is_empty(),
        };
        assert!(found, "{form:?}: {kinds:?}");
    }
}

/// Process 0 ends with an error that says what process 1 has sent, and nothing wrong has come out
/// before.
fn refused(
    form: Form,
    workers: usize,
    says: &str,
    mut change: impl FnMut(RelayChannel, Vec<u8>) -> Vec<(RelayChannel, Vec<u8>)>,
) {
    let (query, settings, expected) = job(form, workers);
    let Came { ends, rows } = run(&query, &settings, 3, &mut change);
    let Some(Err(error)) = &ends[0] else { panic!("{form:?}, {says}: {ends:?}") };
    let error = error.to_string();
    let begins = error.starts_with("internal error (please report it): process 1 sent ");
    assert!(begins && error.contains(says), "{form:?}, {says}: {error}");
    assert!(rows.len() <= expected.len() && rows == expected[..rows.len()], "{form:?}, {says}");
}

/// The leader of process 0, where each process has one worker, and the lane to it.
const LEADER: RelayChannel = RelayChannel { to: 0, channel: 0 };
const LANE: RelayChannel = RelayChannel { to: 0, channel: 2 };

/// Changes the `n`th of the messages over a channel of which `picked` is true.
fn nth(
    n: usize,
    over: RelayChannel,
    picked: impl Fn(&[u8]) -> bool,
    mut change: impl FnMut(Vec<u8>) -> Vec<Vec<u8>>,
) -> impl FnMut(RelayChannel, Vec<u8>) -> Vec<(RelayChannel, Vec<u8>)> {
    let mut left = n;
    move |way, message| {
        if way != over || !picked(&message) {
            return vec![(way, message)];
        }
        let is_it = left == 0;
        left = left.wrapping_sub(1);
        let messages = if is_it { change(message) } else { vec![message] };
        messages.into_iter().map(|message| (way, message)).collect()
    }
}

fn is(kind: Kind) -> impl Fn(&[u8]) -> bool {
    move |message| message[0] == kind as u8
}

/// Whether small segments stand behind the head.
fn is_packed(message: &[u8]) -> bool {
    is(Kind::Packed)(message) || is(Kind::Delta)(message) && message.len() > HEAD_BYTES
}

fn with_head(message: &mut [u8], change: impl Fn(&mut Head)) {
    let (mut head, _) = Head::decode(message).unwrap();
    change(&mut head);
    message[..HEAD_BYTES].copy_from_slice(&head.encode());
}

/// A word of what stands behind a head.
fn set_word(message: &mut [u8], word: usize, change: impl Fn(u64) -> u64) {
    let place = &mut message[HEAD_BYTES..].as_chunks_mut().0[word];
    let before = u64::from_le_bytes(*place);
    *place = change(before).to_le_bytes();
}

#[test]
fn deltas_come_once_and_in_turn() {
    for form in [Form::Eager, Form::Passed] {
        let refused = |says, change: &dyn Fn(Vec<u8>) -> Vec<Vec<u8>>| {
            refused(form, 1, says, nth(2, LEADER, is(Kind::Delta), change));
        };
        refused("epoch 2, not 3", &|delta| vec![delta.clone(), delta]);
        refused("epoch 3, not 2", &|_| vec![]);
        let numbered = |number| {
            move |mut delta: Vec<u8>| {
                with_head(&mut delta, |head| head.number = number);
                vec![delta]
            }
        };
        refused("epoch 1, not 2", &numbered(1));
        refused("epoch 0, not 2", &numbered(0));
        refused("epoch 18446744073709551615, not 2", &numbered(u64::MAX));
    }
}

#[test]
fn deltas_that_change_places_are_refused() {
    for form in [Form::Eager, Form::Passed] {
        let mut kept = None;
        refused(form, 1, "epoch 3, not 2", |way, message| {
            let number = Head::decode(&message).unwrap().0.number;
            match (way == LEADER && is(Kind::Delta)(&message), number) {
                (true, 2) => {
                    kept = Some((way, message));
                    vec![]
                }
                (true, 3) => [(way, message)].into_iter().chain(kept.take()).collect(),
                _ => vec![(way, message)],
            }
        });
    }
}

#[test]
fn what_a_delta_is_made_of_comes_once() {
    for (form, kind) in [(Form::Eager, Kind::Rows), (Form::Passed, Kind::Passed)] {
        let twice = |message: Vec<u8>| vec![message.clone(), message];
        refused(form, 1, " messages of epoch ", nth(3, LEADER, is(kind), twice));
        refused(form, 1, " messages of epoch ", nth(3, LEADER, is(kind), |_| vec![]));
    }
    // A watermark tells how many rows are before it.
    let twice = |message: Vec<u8>| vec![message.clone(), message];
    refused(Form::Exchanged, 1, "a watermark behind ", nth(3, LANE, |_| true, twice));
    refused(Form::Exchanged, 1, "a watermark behind ", nth(3, LANE, |_| true, |_| vec![]));
}

/// Messages for a leader go to another leader: all messages, or only messages with passed rows.
#[test]
fn rows_of_another_leaders_keys_are_refused() {
    for (form, kinds) in [
        (Form::Eager, &[Kind::Arena, Kind::Rows, Kind::Delta][..]),
        (Form::Passed, &[Kind::Passed]),
    ] {
        refused(form, 2, "rows of another leader's keys", |way, message| {
            let goes = way.to == 0 && way.channel < 2 && kinds.iter().any(|k| is(*k)(&message));
            let channel = if goes { 1 - way.channel } else { way.channel };
            vec![(RelayChannel { channel, ..way }, message)]
        });
    }
}

/// A damage to a message, with the expected error.
type Damage = (&'static str, fn(&mut Vec<u8>));

/// Damages that make any message of late merge wrong.
const ANY: &[Damage] = &[
    ("a message that is of an unknown kind", |m| m[0] = 0),
    ("a message that is of an unknown kind", |m| m[0] = 200),
    ("a message of kind Credit to a leader", |m| m[0] = Kind::Credit as u8),
    ("a message of kind WindowRows to a leader", |m| m[0] = Kind::WindowRows as u8),
    ("a message that is shorter than its head", |m| m.truncate(HEAD_BYTES - 1)),
    ("a message that is shorter than its head", |m| m.clear()),
];

const ROWS: &[Damage] = &[
    ("a message that is not made of whole words", |m| m.truncate(m.len() - 3)),
    (" rows in ", |m| m.truncate(m.len() - 8)),
    (" rows in ", |m| {
        let (head, body) = Head::decode(m).unwrap();
        let row_bytes = body.len() / head.count as usize;
        m.truncate(m.len() - row_bytes);
    }),
    (" rows in 0 words", |m| m.truncate(HEAD_BYTES)),
    (" rows in ", |m| with_head(m, |head| head.count += 1)),
    (" rows in ", |m| with_head(m, |head| head.count = u64::MAX)),
    ("a key that is not there", |m| m[HEAD_BYTES..].fill(0xff)),
    ("where no window begins", |m| with_head(m, |head| head.rows_of += 1)),
    ("where no window begins", |m| with_head(m, |head| head.rows_of = i64::MAX as u64)),
    ("where no window begins", |m| with_head(m, |head| head.rows_of = i64::MIN as u64)),
];

const ARENA: &[Damage] = &[
    ("a message that is not made of whole words", |m| m.truncate(m.len() - 3)),
    (" that is not there", |m| {
        m.truncate(HEAD_BYTES + 8);
        with_head(m, |head| head.count = 1);
    }),
    ("an arena without its end", |m| with_head(m, |head| head.count += 1)),
    ("an arena without its end", |m| m.truncate(m.len() - 8)),
    ("an arena that is not in order", |m| with_head(m, |head| head.count -= 1)),
    ("an arena that is not in order", |m| with_head(m, |head| head.number += 1)),
    ("an arena of 4294967296 words", |m| with_head(m, |head| head.count = 1 << 32)),
];

const END: &[Damage] = &[
    ("a delta of process 7", |m| with_head(m, |head| head.id = 7)),
    (" messages of epoch ", |m| with_head(m, |head| head.count += 1)),
    (" without credit", |m| with_head(m, |head| head.flags &= !CREDITED)),
];

/// Damages to the end of a delta, behind whose head small segments stand.
const PACKED: &[Damage] = &[
    ("a message that is not made of whole words", |m| m.truncate(m.len() - 3)),
    ("no packed segment in ", |m| m.truncate(m.len() - 8)),
    ("no packed segment in ", |m| m.extend([0; 8])),
    ("no packed segment in ", |m| set_word(m, 1, |_| u64::MAX)),
    ("no packed segment in ", |m| set_word(m, 1, |_| u64::from(u32::MAX))),
    (" that is not there", |m| m[HEAD_BYTES + 16..].fill(0xff)),
    ("where no window begins", |m| set_word(m, 0, |slice| slice + 1)),
    ("where no window begins", |m| set_word(m, 0, |_| i64::MIN as u64)),
    ("rows without credit", |m| with_head(m, |head| head.flags &= !CREDITED)),
];

const PASSED: &[Damage] = &[
    ("a message that is not made of whole words", |m| m.truncate(m.len() - 3)),
    (" words of rows, not ", |m| m.truncate(m.len() - 8)),
    (" words of rows, not ", |m| with_head(m, |head| head.count += 1)),
    ("fewer words than its rows take", |m| {
        m.truncate(m.len() - 8);
        with_head(m, |head| head.count -= 1);
    }),
    ("a section without a head", |m| {
        m.extend([0; 8]);
        with_head(m, |head| head.count += 1);
    }),
    ("a section of an unknown kind", |m| set_word(m, 1, |_| 9 << 32 | 1)),
    ("an impossible number of rows", |m| set_word(m, 1, |kind| kind >> 32 << 32)),
    ("something else among passed rows", |m| set_word(m, 1, |_| 3 << 32)),
    ("a byte string of impossible length", |m| m[HEAD_BYTES + 16..].fill(0xff)),
    ("where no window begins", |m| set_word(m, 0, |start| start + 1)),
    ("where no window begins", |m| set_word(m, 0, |_| i64::MIN as u64)),
];

#[test]
fn damaged_messages_are_refused() {
    let change = |kind, n, damage: fn(&mut Vec<u8>)| {
        nth(n, LEADER, is(kind), move |mut message| {
            damage(&mut message);
            vec![message]
        })
    };
    for (form, kind, damages) in [
        (Form::Eager, Kind::Rows, ROWS),
        (Form::Eager, Kind::Arena, ARENA),
        (Form::Eager, Kind::Delta, END),
        (Form::Passed, Kind::Passed, PASSED),
        (Form::Passed, Kind::Delta, END),
    ] {
        for (says, damage) in damages.iter().chain(ANY) {
            refused(form, 1, says, change(kind, 3, *damage));
        }
    }
    for (says, damage) in PACKED {
        let damaged = |mut message: Vec<u8>| {
            damage(&mut message);
            vec![message]
        };
        let picked = |m: &[u8]| m[0] == Kind::Delta as u8 && is_packed(m);
        refused(Form::Packed, 1, says, nth(1, LEADER, picked, damaged));
    }
}

/// Rows for a window of which the process has said that it is complete, whether or not it has
/// fired.
#[test]
fn rows_for_complete_windows_are_refused() {
    const LATER: i64 = 1_000_000_000_000;
    let ahead = |mut delta: Vec<u8>| {
        with_head(&mut delta, |head| head.watermark = LATER);
        vec![delta]
    };
    for form in [Form::Eager, Form::Passed] {
        refused(form, 1, " after its end", nth(0, LEADER, is(Kind::Delta), ahead));
    }
    let marked = |slot: &[u8]| slot[slot.len() - 4] == 3;
    let ahead = |mut slot: Vec<u8>| {
        let at = slot.len() - 16;
        slot[at..at + 8].copy_from_slice(&LATER.to_le_bytes());
        vec![slot]
    };
    refused(Form::Exchanged, 1, " after its end", nth(0, LANE, marked, ahead));
}

/// A slot of exchanged rows has no head.
const EXCHANGED: &[Damage] = &[
    ("a message that is not made of whole words", |m| m.truncate(m.len() - 3)),
    ("a damaged message: ", |m| m.truncate(m.len() - 8)),
    ("a watermark behind ", |m| m.clear()),
    ("a section of an unknown kind", |m| m[12] = 9),
    ("an impossible number of rows", |m| m[8..12].fill(0)),
    ("a byte string of impossible length", |m| {
        let end = m.len() - 16;
        m[16..end].fill(0xff);
    }),
    ("where no window begins", |m| m[0] += 1),
    ("a part of another length than it says", |m| {
        m[12] = 4;
        m[..8].fill(0);
    }),
];

#[test]
fn damaged_slots_of_exchanged_rows_are_refused() {
    for (says, damage) in EXCHANGED {
        let begins_with_rows = |m: &[u8]| [1, 2].contains(&m[12]);
        let change = |mut message: Vec<u8>| {
            damage(&mut message);
            vec![message]
        };
        refused(Form::Exchanged, 1, says, nth(2, LANE, begins_with_rows, change));
    }
}

/// Damages to messages with result rows, whose reader must not panic.
#[test]
fn damaged_row_messages_are_refused() {
    let messages = RelayChannel { to: 0, channel: 1 };
    let rows: &[Damage] = &[
        ("a message that is of an unknown kind", |m| m[0] = 0),
        ("a message of kind Rows", |m| m[0] = Kind::Rows as u8),
        ("what leader 0 has to say", |m| with_head(m, |head| head.id = 0)),
        ("what leader 2 has to say", |m| with_head(m, |head| head.id = 2)),
        ("result rows that ", |m| m.truncate(HEAD_BYTES)),
        ("result rows that ", |m| m.truncate(m.len() / 2)),
        ("result rows that ", |m| m[HEAD_BYTES..].fill(0xff)),
        ("credit of leader 1 for no delta", |m| {
            m[0] = Kind::Credit as u8;
            m.truncate(HEAD_BYTES);
        }),
    ];
    for (says, damage) in rows {
        let change = |mut message: Vec<u8>| {
            damage(&mut message);
            vec![message]
        };
        // What the head of the last of its parts says is what holds.
        let last = |m: &[u8]| m[0] == Kind::WindowRows as u8 && m[1] & MORE == 0;
        refused(Form::Eager, 1, says, nth(0, messages, last, change));
    }
    for seed in 0..400 {
        let mut random = Random::new(seed);
        let batch = RecordBatch::try_from_iter([
            ("n", Arc::new(Int64Array::from(vec![Some(1), None, Some(3)])) as ArrayRef),
            ("t", Arc::new(StringArray::from(vec!["a", "b", "c"])) as ArrayRef),
        ]);
        let mut bytes = encode_rows(&batch.unwrap()).unwrap();
        for _ in 0..1 + random.below(3) {
            let at = random.below(bytes.len() as u64) as usize;
            bytes[at] ^= 1 << random.below(8);
        }
        let read = catch_unwind(|| decode_rows(&bytes).map(|rows| rows.num_rows()));
        assert!(read.is_ok(), "seed {seed}");
    }
}

/// Random changed bits in messages to a leader cause neither a panic nor an endless wait. The last
/// watermark stays unchanged: a leader with a lower watermark waits for more.
#[test]
fn changed_bits_do_no_harm() {
    let (mut refused, mut taken) = (0, 0);
    for seed in 0..100 {
        let mut random = Random::new(seed);
        let form = FORMS[random.below(4) as usize];
        let (query, settings, _) = job(form, 1);
        let mut left = random.below(40);
        let Came { ends, .. } = run(&query, &settings, seed, &mut |way, mut message| {
            let last = Head::decode(&message)
                .is_ok_and(|(head, _)| head.watermark == millstream_operators::event_time::END);
            if [LEADER, LANE].contains(&way) && !(way == LEADER && last) {
                if left == 0 {
                    let bytes = [40, message.len()][random.below(2) as usize].min(message.len());
                    for _ in 0..1 + random.below(3) {
                        message[random.below(bytes as u64) as usize] ^= 1 << random.below(8);
                    }
                }
                left = left.wrapping_sub(1);
            }
            vec![(way, message)]
        });
        for end in ends.into_iter().flatten() {
            match end {
                Ok(()) => taken += 1,
                Err(error) => {
                    assert!(!error.to_string().contains("panicked"), "seed {seed}: {error}");
                    refused += 1;
                }
            }
        }
    }
    assert!(refused > 20 && taken > 20, "{refused} refused, {taken} taken in");
}
